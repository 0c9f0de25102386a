// Package localpath holds the step that installs Rancher's local path provisioner.
package localpath

import (
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Objects installs the provisioner, and the class of its volumes.
func Objects(c *cluster.Cluster) step.Step {
	data := struct {
		Image, Helper, Path string
		Default             bool
	}{c.Image("local-path"), c.Image("local-path-helper"), c.Spec.Storage.LocalPath.Path, c.Spec.Storage.Default == v1alpha1.StorageLocalPath}
	return step.Apply{What: "local-path", API: c.AnyAPI(), Objects: templates.Render("localpath/local-path", data)}
}
