package plan

import (
	"fmt"
	"slices"
)

// Gate lets a part wait for another that is not before it in sequence, without
// holding back what stands around it: all nodes join when the API server is
// up, each as soon as it is prepared itself.
type Gate struct{ name string }

// NewGate returns a gate; its name is for messages.
func NewGate(name string) *Gate { return &Gate{name} }

// Opens makes the gate open when p is done. It stands before what the gate holds.
func (g *Gate) Opens(p Part) Part { return opener{g, p} }

// Holds makes p wait for the gate too.
func (g *Gate) Holds(p Part) Part { return holder{g, p} }

type opener struct {
	gate *Gate
	Part
}

func (o opener) build(b *builder, path string, only hostFilter, after []ID) []ID {
	exits := o.Part.build(b, path, only, after)
	b.open[o.gate] = append(b.open[o.gate], exits...)
	return exits
}

type holder struct {
	gate *Gate
	Part
}

func (h holder) build(b *builder, path string, only hostFilter, after []ID) []ID {
	first, opened := b.open[h.gate]
	if !opened {
		b.errs = append(b.errs, fmt.Errorf("%s: waits for the gate %q that no earlier part opens", path, h.gate.name))
	}
	b.holdScopes(first)
	return h.Part.build(b, path, only, slices.Concat(after, first))
}
