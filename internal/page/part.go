package page

import "strings"

// part is a piece of a page that changes as one: a section, a cell of the map. Its element has its id. A part is either a
// leaf, with its html, or holds others between open and shut.
type part struct {
	id    string
	html  string
	open  string
	parts []*part
	shut  string
	// model and draw stand for the html of a leaf that is drawn only if its model, which is comparable, is another than before.
	model any
	draw  func() (string, error)
	// rev is when it last changed as a whole. What changed within is told by the parts.
	rev uint64
}

// change is one element of a page that is another now.
type change struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// follow takes over what is as it was before, and marks with rev what is not.
func (p *part) follow(old *part, rev uint64) error {
	p.rev = rev
	if old != nil && old.isLeaf() != p.isLeaf() {
		old = nil
	}
	if p.isLeaf() {
		return p.followLeaf(old)
	}
	before := map[string]*part{}
	same := old != nil && old.open == p.open && old.shut == p.shut && len(old.parts) == len(p.parts)
	if old != nil {
		for _, c := range old.parts {
			before[c.id] = c
		}
	}
	for i, c := range p.parts {
		same = same && old.parts[i].id == c.id
		if err := c.follow(before[c.id], rev); err != nil {
			return err
		}
	}
	if same {
		p.rev = old.rev
	}
	return nil
}

func (p *part) isLeaf() bool { return p.parts == nil && p.open == "" }

func (p *part) followLeaf(old *part) (err error) {
	if p.draw != nil {
		if old != nil && old.model == p.model {
			p.html, p.rev = old.html, old.rev
			return nil
		}
		if p.html, err = p.draw(); err != nil {
			return err
		}
	}
	if old != nil && old.html == p.html {
		p.rev = old.rev
	}
	return nil
}

// write writes the whole.
func (p *part) write(b *strings.Builder) {
	if p.isLeaf() {
		b.WriteString(p.html)
		return
	}
	b.WriteString(p.open)
	for _, c := range p.parts {
		c.write(b)
	}
	b.WriteString(p.shut)
}

// since adds the elements that changed after rev: each as small as it can be.
func (p *part) since(rev uint64, list []change) []change {
	if p.rev > rev {
		var b strings.Builder
		p.write(&b)
		return append(list, change{p.id, b.String()})
	}
	for _, c := range p.parts {
		list = c.since(rev, list)
	}
	return list
}
