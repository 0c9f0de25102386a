package runnertest

import (
	"errors"
	"fmt"
	"path"

	"mvdan.cc/sh/v3/interp"
)

// ls lists names, one a line.
func ls(c *Call) int {
	o, dirs, ok := c.opts("A1", "")
	if !ok || len(dirs) != 1 {
		return c.Unknown()
	}
	i, err := c.fs.stat(c.path(dirs[0]), true)
	if err != nil {
		return c.Failf(2, "cannot access '%s': %s", dirs[0], sentence(errors.Unwrap(err)))
	}
	if !i.IsDir() {
		c.Printf("%s\n", dirs[0])
		return 0
	}
	list, err := c.fs.readDir(c.path(dirs[0]))
	if err != nil {
		return c.fail(err)
	}
	for _, e := range list {
		if o["A"] != "" || e.Name()[0] != '.' {
			c.Printf("%s\n", e.Name())
		}
	}
	return 0
}

// flock runs a command under a lock; two at a time are not simulated.
func flock(c *Call) int {
	args := c.Args[1:]
	if len(args) > 2 && args[0] == "-w" {
		args = args[2:]
	}
	if len(args) < 2 {
		return c.Unknown()
	}
	if !c.fs.exists(path.Dir(c.path(args[0]))) {
		return c.Failf(66, "cannot open lock file %s: No such file or directory", args[0])
	}
	if !c.fs.exists(c.path(args[0])) {
		c.put(c.path(args[0]), "", 0o644)
	}
	return c.inner(args[1:])
}

// timeout runs a command: none takes long here.
func timeout(c *Call) int {
	if len(c.Args) < 3 {
		return c.Unknown()
	}
	return c.inner(c.Args[2:])
}

// inner runs a command for the one that was called with it.
func (c *Call) inner(args []string) int {
	err := c.exec(args)
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	return c.Unknown()
}

func basename(c *Call) int { c.Printf("%s\n", path.Base(c.Args[1])); return 0 }
func dirname(c *Call) int  { c.Printf("%s\n", path.Dir(c.Args[1])); return 0 }

// df knows one file system, mounted on /.
func df(c *Call) int {
	o, paths, ok := c.opts("Pmik", "")
	if !ok || o["P"] == "" {
		return c.Unknown()
	}
	unit, head := 1, "1048576-blocks"
	if o["k"] != "" {
		unit, head = 1024, "1024-blocks"
	}
	size, used := c.DiskMiB*unit, 2048*unit
	if o["i"] != "" {
		size, used, head = 6_000_000, 50_000, "Inodes"
	}
	free := size - used
	c.fs.mu.Lock()
	if c.fs.full {
		free, used = 0, size
	}
	c.fs.mu.Unlock()
	status := 0
	title := fmt.Sprintf("Filesystem     %s Used Available Capacity Mounted on\n", head)
	for _, p := range paths {
		if !c.fs.exists(c.path(p)) {
			status = c.Failf(1, "%s: No such file or directory", p)
			continue
		}
		c.Printf(title+"/dev/vda1 %d %d %d %d%% /\n", size, used, free, used*100/size)
		title = ""
	}
	return status
}

// printenv prints a variable.
func printenv(c *Call) int {
	if len(c.Args) != 2 {
		return c.Unknown()
	}
	v := c.Getenv(c.Args[1])
	if v == "" {
		return 1
	}
	c.Printf("%s\n", v)
	return 0
}
