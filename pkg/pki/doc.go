// Package pki makes and keeps the certificates of a cluster: the certificate
// authorities, the leaf certificates of every component, the key that signs
// service-account tokens, and kubeconfigs. Everything is made in-process on the
// control machine; nothing here talks to a node.
//
// A [Store] answers the same [Spec] with the same bytes for as long as the stored
// certificate fits it, so that planning twice finds nothing to change.
//
// Names, organizations and usages are those of kubeadm
// (cmd/kubeadm/app/phases/certs/certlist.go, phases/kubeconfig/kubeconfig.go).
package pki
