package config

import (
	"regexp"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

func (k *checker) checkTimers() {
	b, d := &k.Etcd.AutoBackup, &k.Etcd.AutoDefrag
	for at, on := range map[string]bool{"spec.etcd.autoBackup.enabled": *b.Enabled, "spec.etcd.autoDefrag.enabled": d.Enabled} {
		if on && k.Etcd.Type == v1alpha1.TypeExternal {
			k.fail(at, true, "not with etcd.type external: kubexm does not run that etcd")
		}
	}
	k.calendar("spec.etcd.autoBackup.schedule", b.Schedule)
	k.calendar("spec.etcd.autoDefrag.schedule", d.Schedule)
	const at = "spec.etcd.autoBackup.dir"
	if b.Dir != "" && k.absolute(at, b.Dir) && k.Etcd.DataDir != "" && (b.Dir+"/" == k.Etcd.DataDir+"/" || strings.HasPrefix(b.Dir, k.Etcd.DataDir+"/")) {
		k.fail(at, b.Dir, "is in spec.etcd.dataDir, which is emptied when the cluster is deleted")
	}
}

// calendar checks the form of what systemd has as times (systemd.time(7)); whether it takes them is for systemd to say.
func (k *checker) calendar(at, value string) {
	if value != "" && !calendar.MatchString(value) {
		k.fail(at, value, "is not a calendar event of systemd, like daily, 02:00 or Sun *-*-* 03:30:00")
	}
}

var calendar = regexp.MustCompile(`^(minutely|hourly|daily|weekly|monthly|quarterly|semiannually|yearly|annually|` +
	`([A-Za-z]{3,9}([,.-]+[A-Za-z]{3,9})* )?([0-9*/.,~]+-)?[0-9*/.,]+[-~][0-9*/.,~]+( [0-9*/.,]+(:[0-9*/.,]+){1,2})?|` +
	`([A-Za-z]{3,9}([,.-]+[A-Za-z]{3,9})* )?[0-9*/.,]+(:[0-9*/.,]+){1,2})( [A-Za-z]+(/[A-Za-z0-9_+-]+)*)?$`)
