module kubexm.test/components/cri-o/conmon

go 1.26.0

require github.com/containers/conmon v2.2.1+incompatible
