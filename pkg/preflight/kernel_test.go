package preflight

import "testing"

// TestKernelOfNetwork looks at the kernel that a network plugin needs.
func TestKernelOfNetwork(t *testing.T) {
	for kernel, want := range map[string]bool{
		"5.10.0-28-amd64": true, "6.1.0-18-amd64": true, "4.18.0-553.el8_10.x86_64": true, "4.18.0-477.el8_8.x86_64": false, "5.4.0-216-generic": false, "of my own": true,
	} {
		if got := atLeastKernel(kernel, "5.10"); got != want {
			t.Errorf("%s: %t", kernel, got)
		}
	}
}
