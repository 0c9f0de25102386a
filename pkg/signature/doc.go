// Package signature signs texts with SSH keys, and says who signed one, as
// "ssh-keygen -Y sign" and "ssh-keygen -Y verify" do: in OpenSSH's format SSHSIG
// (https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.sshsig).
//
// It also says whether somebody signed a file the way of Sigstore, as
// "cosign verify-blob --certificate --signature" does, but without a network (ADR 0038).
package signature
