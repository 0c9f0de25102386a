package testbed

import "context"

// Burn replaces a node by a new machine under its name and address: everything on it is gone, and its
// machine-id and host keys are others. It is off until Start. Whoever recorded its host key has to
// learn the new one; KnownHosts is up to date.
func (t *Testbed) Burn(ctx context.Context, n Node) error {
	unlock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.remove(ctx, n.Name); err != nil {
		return err
	}
	if err := t.create(ctx, n); err != nil {
		return err
	}
	nodes, err := t.Nodes()
	if err != nil {
		return err
	}
	return t.knownHosts(nodes)
}
