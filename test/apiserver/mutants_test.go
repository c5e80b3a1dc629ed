package apiserver

// mutant is a server that lacks some behaviour, and the rows that notice it.
type mutant struct {
	name   string
	broken func(*Server)
	rows   []string
}

var mutants = []mutant{}
