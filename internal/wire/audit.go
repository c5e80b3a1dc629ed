package wire

import "github.com/fenced/fenced/internal/audit"

// AuditLine is one line of the answer to GET /v1/audit. One field is set: an entry, a break, or, on the last line, the end.
type AuditLine struct {
	Entry *audit.Entry `json:"entry,omitempty"`
	Break *audit.Break `json:"break,omitempty"`
	End   *AuditEnd    `json:"end,omitempty"`
}

// AuditEnd is the end of an answer. Without it the answer is not whole.
type AuditEnd struct {
	Entries int `json:"entries"`
	Breaks  int `json:"breaks"`
	// Cut is why there may be more entries than were sent; empty if these are all.
	Cut string `json:"cut,omitempty"`
}
