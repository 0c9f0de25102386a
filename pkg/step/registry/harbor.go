package registry

import (
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// What Harbor's installer has, and what it makes, is in one directory.
const (
	harborDir = "/opt/harbor/"
	compose   = harborDir + "docker-compose.yml" // made by prepare, for containers that are kept by Docker
)

// HarborSteps install and run Harbor.
func HarborSteps(c *cluster.Cluster, host string) []step.Step {
	return []step.Step{HarborInstaller(c, host), DataDir(c), Harbor(c, host), HarborService(c, host), Answers(c, c.Registry()), OtherHarbors(c)}
}

// HarborInstaller puts Harbor's installer on its host.
func HarborInstaller(c *cluster.Cluster, host string) step.Step {
	u := step.Upload{What: "Harbor's installer", Store: c.Store, Programs: []step.Programs{{Artifact: c.Artifact("harbor", host), Dir: harborDir}}}
	return step.With(u, step.Options{Timeout: transferTimeout, Limit: step.LimitTransfer})
}

// Harbor has Docker load Harbor's images, and Harbor's own prepare make all configuration from harbor.yml. That makes
// other secrets each time: it runs when what it reads has changed.
func Harbor(c *cluster.Cluster, host string) step.Step {
	files := step.Files{What: "Harbor", List: harborFiles(c)}
	version := c.Spec.Registry.Harbor.Version
	digest, err := step.Digest(HarborInstaller(c, host), files)
	c.Check(err)
	prepared := harborDir + "prepared"
	files.Also = []step.Command{
		{ // without an Undo, as packages are: it takes minutes, and delete takes them away
			What:   "images of Harbor",
			Unless: fmt.Sprintf("i=$(grep -o 'goharbor/.*' %s) && docker image inspect goharbor/prepare:%s $i", compose, version),
			Run:    fmt.Sprintf("docker load -q -i %sharbor.%s.tar.gz >&2", harborDir, version),
		},
		{
			What:   "configuration of Harbor",
			Unless: "[ -f " + compose + " ] && grep -qx " + digest + " " + prepared,
			Run: "for f in common input docker-compose.yml prepared; do keep " + harborDir + "$f; done\n" +
				"(umask 077; " + harborDir + "prepare >&2; echo " + digest + " >" + prepared + ")",
			Makes: []string{"path " + harborDir + "common", "path " + harborDir + "input", "path " + compose, "path " + prepared},
			Undo:  "rm -f " + prepared + "; if [ ! -e /etc/systemd/system/harbor.service ]; then rm -rf " + harborDir + "common " + compose + "; fi",
		},
	}
	return step.With(files, step.Options{Timeout: transferTimeout})
}

// harborFiles are what prepare reads.
func harborFiles(c *cluster.Cluster) []step.File {
	cert := c.Leaf(c.RegistryCert())
	_, admin := c.RegistryLogin()
	database, err := c.Certs.Password(pki.Registry, "database")
	c.Check(err)
	version := strings.TrimPrefix(c.Spec.Registry.Harbor.Version, "v")
	config := templates.Render("registry/harbor", struct {
		Host, Cert, Key, Admin, Database, Dir, Version string
		Port                                           int
	}{
		c.RegistryDomain(), dir + "tls.crt", dir + "tls.key", admin.Reveal(), database.Reveal(), c.Spec.Registry.DataDir,
		version[:strings.LastIndex(version, ".")] + ".0", c.RegistryPort(), // the format's, which no patch release changes
	})
	return []step.File{
		{Path: harborDir + "harbor.yml", Content: config, Mode: 0o600},
		{Path: dir + "tls.crt", Content: cert.Cert, Mode: 0o644},
		{Path: dir + "tls.key", Content: step.Content(cert.Key.Reveal()), Mode: 0o600},
	}
}

// HarborService runs Harbor. Docker's own restarts know no order, and the containers need that of their logs first:
// so compose stays with them, and starts them again when they or Docker have ended.
func HarborService(c *cluster.Cluster, host string) step.Step {
	const docker = "/usr/bin/docker compose -f " + compose
	return step.Unit{
		Name: "harbor", Description: "Private image registry Harbor", Documentation: "https://goharbor.io/docs", After: "docker.service",
		Command:  docker + " up",
		Settings: []string{"ExecStop=" + docker + " down -v --remove-orphans", "StandardOutput=null", "StandardError=journal"}, // the logs are in the data directory
		Reads:    []step.Step{HarborInstaller(c, host), Harbor(c, host)},
	}.Service()
}

// OtherHarbors removes images of other releases of Harbor from Docker, which nothing runs any more.
func OtherHarbors(c *cluster.Cluster) step.Step {
	images := `docker image ls --format '{{.Repository}}:{{.Tag}}' --filter 'reference=goharbor/*' | grep -v ':` + c.Spec.Registry.Harbor.Version + `$'`
	return step.Command{
		What:   "one release of Harbor",
		Unless: "! " + images + " >/dev/null",
		Run:    images + " | while read -r i; do docker image rm \"$i\" >&2; done",
	}
}

// HarborGone removes Harbor's containers and images from Docker, should that still run.
func HarborGone() step.Step {
	containers := "docker ps -aq --filter " + runner.Quote("label=com.docker.compose.project.working_dir="+strings.TrimSuffix(harborDir, "/"))
	const images = `docker image ls --format '{{.ID}}' --filter 'reference=goharbor/*' | sort -u`
	return step.Command{
		What:   "no Harbor",
		Unless: "! systemctl is-active -q docker || [ -z \"$(" + containers + "; " + images + ")\" ]",
		Run: "if [ -f " + compose + " ]; then docker compose -f " + compose + " down -v --remove-orphans >&2 || :; fi\n" + // it wants files that may be gone
			"for c in $(" + containers + "); do docker rm -f \"$c\" >&2; done; for i in $(" + images + "); do docker image rm -f \"$i\" >&2; done",
	}
}
