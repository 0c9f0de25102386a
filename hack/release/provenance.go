package main

import (
	"encoding/json"
	"os"
	"time"
)

// statement says in which way its subjects were made: https://in-toto.io/Statement/v1, with https://slsa.dev/spec/v1.0/provenance.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// artifact is a ResourceDescriptor of in-toto.
type artifact struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType          string     `json:"buildType"`
		ExternalParameters parameters `json:"externalParameters"`
		Dependencies       []artifact `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type parameters struct {
	Version     string   `json:"version"`
	Date        string   `json:"date"`
	Platforms   []string `json:"platforms"`
	Go          string   `json:"go"`
	Flags       []string `json:"flags"`
	Environment []string `json:"environment"`
}

// provenance writes of which commit, by which Go and how all the files are made: what gives the same bytes anywhere, so neither when nor where.
func (r *release) provenance() error {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	all, err := checksums(r.dir)
	if err != nil {
		return err
	}
	for _, f := range all {
		s.Subject = append(s.Subject, artifact{Name: f.name, Digest: map[string]string{"sha256": f.sum}})
	}
	source := artifact{URI: "git+" + home + "@" + r.commit, Digest: map[string]string{"gitCommit": r.commit}}
	if r.dirty() {
		source.Annotations = map[string]string{"modified": "true"}
	}
	def := &s.Predicate.BuildDefinition
	def.BuildType, def.Dependencies = home+"/tree/main/hack/release", []artifact{source, {Name: "go", URI: "pkg:generic/go@" + r.made.GoVersion}}
	def.ExternalParameters = parameters{Version: r.version, Date: r.date.Format(time.RFC3339), Go: r.made.GoVersion, Flags: r.flags, Environment: environment}
	for _, p := range r.platforms {
		def.ExternalParameters.Platforms = append(def.ExternalParameters.Platforms, p.os+"/"+p.arch)
	}
	s.Predicate.RunDetails.Builder.ID = home + "/blob/main/Makefile#release"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.named(".provenance.json"), append(text, '\n'), 0o644)
}
