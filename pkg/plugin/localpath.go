package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

var localPath = Storage{
	Plugin: Plugin{
		Name: v1alpha1.StorageLocalPath,
		Parts: []Component{
			{Name: "local-path", Version: "v0.0.30", Image: "docker.io/rancher/local-path-provisioner:v{version}"},
			{Name: "local-path-helper", Version: "v1.37.0", Image: "docker.io/library/busybox:{version}"}, // makes and removes directories
		},
		Version: Field{"spec.storage.localPath.version", func(s *v1alpha1.Spec) *string {
			if s.Storage == nil || s.Storage.LocalPath == nil {
				return nil
			}
			return &s.Storage.LocalPath.Version
		}},
		Section: &Section{
			Path:  "spec.storage.localPath",
			Given: func(s *v1alpha1.Spec) bool { return s.Storage != nil && s.Storage.LocalPath != nil },
		},
	},
	Ready: "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: local-path-storage, name: local-path-provisioner}}",
	Dir:   func(s *v1alpha1.Spec) string { return s.Storage.LocalPath.Path },
}
