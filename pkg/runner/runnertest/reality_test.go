package runnertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// scripts are run in /t, where the files a (three lines) and d/f are. What they
// print and how they end must be the same in memory and on real shells.
var scripts = []string{
	// the shell
	`set -e; false; echo never`,
	`set -e; f() { false; echo in; }; f || echo out; f; echo never`,
	`set -e; if false; then :; fi; false || true; x=$(false) || echo $?; x=$(false); echo never`,
	`set -e; false | true; echo on; (false; echo never); echo never`,
	`(exit 3); echo $?; { echo one; exit 4; echo never; } >&2; echo never`,
	`echo x >/nope/y || echo no; cat </nope || echo no; echo x >d || echo no`,
	`x='a  b'; echo $x "$x" ${x#a} ${x%%b} ${x%% *} "${y:-none}" ${#x}; set -- 1 "2 3"; for w in "$@"; do echo "$w"; done; echo $#`,
	`while IFS= read -r l; do echo "<$l>"; done <a; read -r one rest <<END
 first second  third 
END
echo "$one|$rest"`,
	`printf 'a b\nc' | { read -r x y; echo "$x-$y"; read -r x; echo "$x $?"; }`,
	`case abc in a*) echo yes;; *) echo no;; esac; case "" in "") echo empty;; esac; echo $((2+3*4)) $(echo $(echo nested))`,
	`echo d/*; echo none*; echo [ab]; touch .h; echo *; set -f; echo *`,
	`umask 077; touch one; (umask 022; touch two); mkdir three; touch four; stat -c '%n %a' one two three four`,
	`command -v cat >/dev/null; echo $?; command -v no-such-thing || echo no; command -v openssl-none >/dev/null || echo no`,
	`echo a 2>&1 >/dev/null | cat; cat nope 2>/dev/null || echo $?; { cat nope; echo out; } 2>/dev/null`,
	`x=$(printf 'a\n\n\n'); echo "[$x]"; printf '%s\n' a b; printf '%03d|%5s|%x\n' 7 ab 255`,
	`hash() { echo mine; }; hash; sum() { echo "$1"; }; sum x; trap 'echo bye' EXIT; exit 5`,
	`[ a = a ] && [ a != b ] && [ 2 -gt 1 ] && [ -f a ] && [ -d d ] && ! [ -e no ] && [ -s a ] && [ -n x ] && [ -z "" ] && [ -x d ]; echo $?`,
	`f() { sleep 0; printf '%s\n' "$1" >"$1"; }; f one & f two & wait; cat one two; timeout 5 cat a; timeout 5 cat nope; echo $?; timeout 5 grep -q zzz a || echo $?`,
	`for i in d/* none/*; do if read -r x <"$i/y"; then echo "$x"; fi; done 2>/dev/null; d=/t/d/no/such; until [ -e "${d:-/}" ]; do d=${d%/*}; done; echo "$d"`,
	// files
	`stat -c '%s %a %U:%G %n %F' a d; stat -c %s nope; echo $?; ln -s a l; stat -c %F l; stat -L -c '%F %s' l`,
	`mkdir d; echo $?; mkdir -p d/x/y; mkdir n/o; echo $?; rmdir d; echo $?; rmdir d/x/y d/x; ls d; mkdir -m 700 p; stat -c %a p; mkdir -p a; echo $?`,
	`rm nope; echo $?; rm -f nope; echo $?; rm d; echo $?; rm -rf d nope; echo $?; ls .; rm -rf ./*; ls -A .; rm -rf none/* .[!.]*; echo $?`,
	`mv a d; ls .; ls d; mv -f d/a b; cat b; mv nope x; echo $?; mv -fT b d; echo $?; mv d e; ls e; touch z; mv -f z e/f; cat e/f`,
	`cp a c; cp a d; cp -a d e; cp -a d e; ls e; ls e/d; cp d x; echo $?; cp -r d y; cat y/f; chmod 600 a; cp a q; cp -a a r; stat -c '%n %a' q r; cp nope x; echo $?`,
	`ln -s a l; ln -s no dangling; cat l; cat dangling; echo $?; [ -e dangling ]; echo $?; [ -L dangling ]; echo $?; readlink l; readlink a; echo $?; ln -s b l; echo $?; ln -sf b l; readlink l; ln -s a d; readlink d/a; ln -sfn x d2; readlink d2`,
	`ln -s a l; echo new >l; cat a; rm l; cat a; ln -s d ld; ls ld; cp -a ld copy; readlink copy; rm -rf ld; ls d; mv -f a al; ln -s al again; mv again b; readlink b`,
	`chmod 640 a; stat -c %a a; chmod +x a; stat -c %a a; chmod -R 700 d; stat -c %a d d/f; chmod 4755 a; stat -c %a a; chmod 600 nope; echo $?`,
	`chown nobody:nogroup a; stat -c %U:%G a; chown -R root:root d; chown nosuch a; echo $?; chown nobody a; stat -c %U:%G a; chown 0:0 a; stat -c '%U:%G %u:%g' a; chown 65534:65534 a; stat -c '%U:%G %u:%g' a`,
	`install -d -m 750 i/j/k; stat -c %a i i/j/k; install -d -m 700 d; stat -c %a d; touch t1 t2; ls .; ls -A nope; echo $?; ls a; basename /x/y.z; dirname /x/y`,
	`echo one >n; echo two >>n; cat n; : >n; stat -c %s n; i=$(stat -c %i a); echo x >>a; [ "$i" = "$(stat -c %i a)" ] && echo same; sync n; echo $?`,
	`z=$(stat -c %z a); chmod 600 a; [ "$z" = "$(stat -c %z a)" ] || echo changed; z=$(stat -c %z a); mv a b; [ "$z" = "$(stat -c %z b)" ] || echo moved`,
	`df -Pk . | { read -r _; read -r _ _ _ free _; [ "$free" -gt 0 ] && echo some; }; df -Pm /nope 2>/dev/null; echo $?; df -Pi d | wc -l`,
	`flock -w 5 lock cat a; flock lock cat nope; echo $?; flock -w 1 /nope/lock cat a; echo $?`,
	// text
	`cat a - </dev/null; cat a nope 2>/dev/null; echo $?; printf 'x\0y' >z; stat -c %s z; tr '\0' '\n' <z; echo; tr -d 'o' <a; cat a | tr b X`,
	`head -n 1 a; head -c 5 <a; echo; tail -n 1 a; tail -n +2 a; printf 1234567 | { head -c 2; echo; head -c 3; echo; cat; }; echo; head -n 9 nope; echo $?`,
	`grep b a; grep -c . a; grep -v b a; grep -x 'b.*' a; grep -q zzz a; echo $?; grep z nope; echo $?; grep -F 'b.' a; echo $?; grep -E 'a|c' a; grep -e -x a; echo $?`,
	`grep -oE '[ab]+' a; grep 'a\{1,2\}' a; grep 'a+' a; echo $?; grep -i BE a; grep -qxF -e 'beta two' a; echo $?; grep -E '^(alpha|x)[[:space:]]' a`,
	`grep -l e a d/f; grep -lx 'gamm.' d/f a; grep -lx z a; echo $?; grep -l e a nope; echo $?; x=$(cat a); { cat a; echo new; } | grep -vxF -e "$x"; cat a | grep -qvxF -e "$x"; echo $?; echo a | grep -qvxF -e ""; echo $?`,
	`X=1; export X; printenv X; printenv NOSUCH; echo $?`,
	`printf 'beta two\nno\n' >p; grep -vxF -f p a; grep -xF -f p a; : >e; grep -F -f e a; echo $?; grep -vF -f e a`,
	`cut -d' ' -f2 a; cut -d: -f1 a; cut -d' ' -f2- a; sort -r a; printf 'b\na\nb\n' | sort -u; printf 'a\na\nb\n' | uniq; wc -l a; wc -l <a; wc -c <a`,
	`sed -n '/^a.*one/p' a; sed -i 's/^[^b].*one/# &/' a; cat a; echo; sed -n '/zzz/p' a; sed -i 's/x/y/' nope; echo $?`,
	`printf abc | sha256sum; sha256sum a nope 2>/dev/null; echo $?; echo x | tee t; echo y | tee -a t; cat t; cmp -s a a; echo $?; cmp -s a t; echo $?; cmp -s a nope; echo $?`,
	`id -u; id -un; id nosuch >/dev/null; echo $?; [ "$(date +%s)" -gt 1000000 ]; echo $?; printf 'a b\n' | while read -r x y; do echo "$y $x"; done`,
}

const setUp = `rm -rf /t; mkdir -p /t/d; cd /t; printf 'alpha one\nbeta two\ngamma\n' >a; echo f >d/f
`

func result(ctx context.Context, c connector.Connector, script string) string {
	var out bytes.Buffer
	err := c.Exec(ctx, connector.Cmd{Line: setUp + script, Stdout: &out})
	var exit *connector.ExitError
	switch {
	case errors.As(err, &exit):
		return out.String() + fmt.Sprint("status ", exit.Code)
	case err != nil:
		return err.Error()
	}
	return out.String()
}

// TestAgreesWithReality compares the host in memory with real shells and
// commands.
func TestAgreesWithReality(t *testing.T) {
	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := runnertest.NewSandbox(t, shell)
			for _, script := range scripts {
				memory, real := result(t.Context(), runnertest.Debian12("node1"), script), result(t.Context(), s, script)
				if memory != real {
					t.Errorf("%s\nmemory:\n%s\n%s:\n%s", script, memory, shell, real)
				}
			}
		})
	}
}
