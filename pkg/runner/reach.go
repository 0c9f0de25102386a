package runner

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// reachTime is how long a machine may take to answer, in seconds: time enough to
// send a lost packet again.
const reachTime = 2

// Reach tries, in one round trip and at once, to connect from the host to addresses
// (10.0.0.11:6443), and returns for each that it could try why it is out of reach; empty: it is not.
//
// Nothing needs to listen there: a refused connection is an answer of that machine
// (tcp(7): a reset), so packets go both ways. What a packet filter takes away stays
// without an answer, and what firewalld rejects comes back as "No route to host". A
// filter that rejects by a reset cannot be told from a port that nobody uses.
func (r *Runner) Reach(ctx context.Context, addresses []string) (tried map[string]string, err error) {
	var tries strings.Builder
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("trying %s: %w", a, err)
		}
		fmt.Fprintf(&tries, "try %s &\n", Quote(host, port))
	}
	out, err := r.ask(ctx, fmt.Sprintf("PATIENCE=%d\n%s", reachTime, reachScript), tries.String()+"wait")
	if err != nil {
		return nil, fmt.Errorf("trying ports of other hosts from %s: %w", r.Host, err)
	}
	return parseReach(out), nil
}

// parseReach reads lines of "address port status message".
func parseReach(out string) map[string]string {
	tried := map[string]string{}
	for l := range strings.Lines(out) {
		w := strings.SplitN(strings.TrimSpace(l), " ", 4)
		if len(w) < 3 {
			continue
		}
		why, address := "", net.JoinHostPort(w[0], w[1])
		if len(w) == 4 {
			why = w[3]
		}
		switch {
		case w[2] == "126", w[2] == "127": // no bash, so nothing is known
		case w[2] == "0", why == "Connection refused":
			tried[address] = ""
		case w[2] == "124", why == "":
			tried[address] = fmt.Sprintf("no answer in %d seconds", reachTime)
		default:
			tried[address] = strings.ToLower(why[:1]) + why[1:]
		}
	}
	return tried
}
