package step

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

type progressKey struct{}

// WithProgress lets the step that runs under ctx tell how far it is.
func WithProgress(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// Tell tells people something about the step that runs, in a few words.
func Tell(ctx context.Context, text string) {
	if tell, ok := ctx.Value(progressKey{}).(func(string)); ok {
		tell(text)
	}
}

// Progress tells how far a long step is, in a few words: "120 of 300 MB". It is
// for people, so it says nothing more often than twice a second.
func Progress(ctx context.Context) func(done, total int64) {
	tell, ok := ctx.Value(progressKey{}).(func(string))
	if !ok {
		return func(int64, int64) {}
	}
	var last atomic.Int64
	return func(done, total int64) {
		now := time.Now().UnixMilli()
		if was := last.Load(); now-was < 500 || !last.CompareAndSwap(was, now) {
			return
		}
		if total <= 0 {
			tell(fmt.Sprintf("%d MB", done>>20))
			return
		}
		tell(fmt.Sprintf("%d of %d MB", done>>20, total>>20))
	}
}

// counted is a reader that reports what went through it.
type counted struct {
	io.Reader
	done *atomic.Int64
	tell func(done int64)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.tell(c.done.Add(int64(n)))
	return n, err
}
