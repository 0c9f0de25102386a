package plugin

// distribution is the registry of the project Distribution.
var distribution = Registry{
	Plugin: Plugin{
		Name: "registry", Unit: "registry",
		Parts: []Component{{
			Name: "registry", Version: "v3.1.2",
			Base:     GitHub + "distribution/distribution/releases/download/v{version}/",
			File:     "registry_{version}_linux_{arch}.tar.gz",
			Sums:     "{file}.sha256",
			Programs: []string{"registry"},
		}},
	},
	DataDir: "/var/lib/registry",
}
