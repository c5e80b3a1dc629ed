package licence

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	mit  = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")\n\nTHE SOFTWARE IS PROVIDED “AS IS”"
	bsd2 = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that the following conditions are met: 1. 2."
	bsd3 = bsd2 + " Neither the name of X may be used to endorse or promote products"
)

func TestLicencesAreKnown(t *testing.T) {
	for text, want := range map[string][]string{
		mit: {"MIT"}, bsd2: {"BSD-2-Clause"}, bsd3: {"BSD-3-Clause"},
		mit + " " + bsd3: {"BSD-3-Clause", "MIT"},
		"Mozilla Public License, version 2.0\n\n1. Definitions ... GNU General Public License, Version 2.0": {"MPL-2.0"},
		"GNU GENERAL PUBLIC LICENSE Version 3":                                        nil,
		mit + " or, at your option, the GNU Lesser General Public License":            nil,
		bsd3 + " All advertising materials mentioning features of this software must": nil,
		"All rights reserved.": nil,
	} {
		if got := Identify(text); !slices.Equal(got, want) {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// TestUnknownLicencesAreRefused: a module whose licence nobody has read is not linked.
func TestUnknownLicencesAreRefused(t *testing.T) {
	for text, ok := range map[string]bool{mit: true, "Pay me.": false, "": false} {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(top, "a", "LICENSE.md"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := Module{Path: "example.invalid/m"}
		if err := m.addAbove(dir, top); err != nil {
			t.Fatal(err)
		}
		if _, err := m.identify(); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTextsAreClean(t *testing.T) {
	if got := clean("\r\n\r\n a \t\r\nb\x1b[31m\xff\n\n"); got != " a\nb[31m?\n" {
		t.Errorf("%q", got)
	}
}
