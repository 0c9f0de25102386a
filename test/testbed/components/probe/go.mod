module kubexm.test/components/probe

go 1.26.0
