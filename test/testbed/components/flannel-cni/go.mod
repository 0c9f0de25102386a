module kubexm.test/components/flannel-cni

go 1.14

require github.com/containernetworking/plugins v0.9.1 // indirect

tool github.com/containernetworking/plugins/plugins/meta/flannel
