package connector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// tidying is how long what was canceled may take to leave nothing behind.
const tidying = 3 * time.Second

// Files are those of a machine that speaks SFTP, over a connection of their own. Large writes and reads are many requests at once: a write that fails may leave holes.
type Files struct {
	*sftp.Client
	conn *conn
	end  func()
}

// SFTP logs in to a machine for its files alone: an account without a shell will do. Errors are as those of SSH. The connection must be closed; it
// ends by itself some seconds after ctx.
func SFTP(ctx context.Context, cfg SSHConfig) (*Files, error) {
	cfg = cfg.withDefaults()
	c, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, cfg.ConnectTimeout, errTimeout)
	defer cancel()
	stop := context.AfterFunc(limited, func() { c.client.Close() })
	client, err := sftp.NewClient(c.client, sftp.UseConcurrentWrites(true))
	if !stop() {
		err = fault.Transient(context.Cause(limited))
	}
	if err != nil {
		err = fault.Advise(c.orLost(err), fmt.Sprintf("give %s SFTP: \"Subsystem sftp internal-sftp\" in sshd_config there", cfg.User))
		c.close()
		return nil, fmt.Errorf("starting SFTP on %s: %w", cfg, err)
	}
	over := make(chan struct{})
	stop = context.AfterFunc(ctx, func() {
		select {
		case <-over:
		case <-time.After(tidying):
			c.client.Close()
		}
	})
	return &Files{client, c, sync.OnceFunc(func() {
		stop()
		close(over)
	})}, nil
}

// Close ends the connection, whatever it is busy with.
func (f *Files) Close() error {
	f.end()
	f.conn.close()
	_ = f.Client.Close() // waits for its goroutine; there is nothing left to close
	return nil
}

// OrLost returns the loss of the connection, which carries advice, where that is behind an error.
func (f *Files) OrLost(err error) error {
	return fault.Advise(f.conn.orLost(err), fmt.Sprintf("run it again; if it stays so, look at the log of sshd on %s", f.conn.cfg.Address))
}

func (c *conn) close() {
	c.client.Close()
	<-c.lost
}

// orLost is lostOr for SFTP: what the machine has answered is no loss.
func (c *conn) orLost(err error) error {
	var answer *sftp.StatusError
	if errors.As(err, &answer) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	select {
	case <-c.lost:
		return c.cause
	case <-time.After(settle):
		return err
	}
}
