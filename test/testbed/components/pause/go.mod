module kubexm.test/components/pause

go 1.26.0
