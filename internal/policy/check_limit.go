package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// maxChecksOfNamespace is how many checks of one namespace fenced evaluates, unless Rules.MaxChecks overrides it: the
// first by name. Each check has metrics and a place in every answer, and every event asks all of them for the time, so
// that whoever may write checks in one namespace could make each decision take long. The others are in no table: they
// select nothing, and limit nothing. Checks without a namespace, and files, are the administrator's, and have no limit. // I18
const maxChecksOfNamespace = 1000

// checkLimit is how many checks of a namespace are evaluated.
func (r *Rules) checkLimit() int { return cmp.Or(r.MaxChecks, maxChecksOfNamespace) }

// takesSeat reports whether a check is one of those of whose namespace only so many are evaluated.
func (r *Rules) takesSeat(c *Check) (author space, limited bool) {
	author, limited = r.authorOf(c)
	return author, limited && author.namespace != ""
}

// byCheckName orders the checks of a namespace. A check keeps its place in another version of its API.
func byCheckName(a, b *Check) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind), strings.Compare(group(a.APIVersion), group(b.APIVersion)))
}

// seated returns the checks that are evaluated, in their order, and the namespaces that have more.
func (r *Rules) seated(checks []Check) (list []Check, crowded map[space]bool) {
	byAuthor := map[space][]*Check{}
	for i := range checks {
		if author, limited := r.takesSeat(&checks[i]); limited {
			byAuthor[author] = append(byAuthor[author], &checks[i])
		}
	}
	over := map[*Check]bool{}
	crowded = map[space]bool{}
	for author, all := range byAuthor {
		if len(all) <= r.checkLimit() {
			continue
		}
		crowded[author] = true
		slices.SortFunc(all, byCheckName)
		for _, c := range all[r.checkLimit():] {
			over[c] = true
		}
	}
	if len(over) == 0 {
		return checks, crowded
	}
	for i := range checks {
		if !over[&checks[i]] {
			list = append(list, checks[i])
		}
	}
	return list, crowded
}

// crowdErrors says of each namespace that has more checks that not all of them are evaluated.
func (r *Rules) crowdErrors(crowded map[space]bool) (list []ObjectError) {
	for author := range crowded {
		list = append(list, ObjectError{Object: author.text(), Message: string(reason.CheckLimit) + ": " + r.checkLimitMessage()})
	}
	return list
}

func (r *Rules) checkLimitMessage() string {
	return fmt.Sprintf("it has more than %d checks, and fenced evaluates the first %d by name: the others select nothing and limit nothing; delete those that are not needed",
		r.checkLimit(), r.checkLimit())
}

// Crowd is a namespace with more checks than fenced evaluates.
type Crowd struct{ Namespace, Message string }

// Crowds lists the namespaces with more checks than fenced evaluates.
func (l *Ledger) Crowds() (list []Crowd) {
	for _, author := range slices.SortedFunc(maps.Keys(l.crowded), space.compare) {
		list = append(list, Crowd{author.text(), l.w.rules.checkLimitMessage()})
	}
	return list
}

// setCheck puts a check into its place among those of its namespace. The first have a seat.
func (l *Ledger) setCheck(id ObjectID, c *Check) {
	sought := &Check{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
	if c != nil {
		sought.Source = c.Source
	}
	author, limited := l.w.rules.takesSeat(sought)
	if !limited {
		l.setSeated(id, c)
		return
	}
	list, most := l.byAuthor[author], l.w.rules.checkLimit()
	at, found := slices.BinarySearchFunc(list, sought, byCheckName)
	switch {
	case c == nil && (!found || list[at].APIVersion != id.APIVersion):
		return // it does not exist, or still exists in another version of the API
	case c != nil && found:
		list[at] = c
	case c != nil:
		if at < most && len(list) >= most { // it has the seat of the last
			l.setSeated(objectOf(list[most-1]), nil)
		}
		list = slices.Insert(list, at, c)
	default:
		list = slices.Delete(list, at, at+1)
	}
	if at < most {
		l.setSeated(id, c)
		if c == nil && len(list) >= most {
			l.setSeated(objectOf(list[most-1]), list[most-1])
		}
	}
	l.noteCrowd(author, list)
}

// noteCrowd stores the checks of a namespace, and whether there are too many.
func (l *Ledger) noteCrowd(author space, list []*Check) {
	if l.byAuthor[author] = list; len(list) == 0 {
		delete(l.byAuthor, author)
	}
	if over := len(list) > l.w.rules.checkLimit(); over != l.crowded[author] {
		l.version++
		if l.crowded[author] = over; !over {
			delete(l.crowded, author)
		}
	}
}

// allChecks lists the checks, with those that are not evaluated.
func (l *Ledger) allChecks() (list []Check) {
	for _, e := range l.checks {
		if _, limited := l.w.rules.takesSeat(e.check); !limited {
			list = append(list, *e.check)
		}
	}
	for _, checks := range l.byAuthor {
		for _, c := range checks {
			list = append(list, *c)
		}
	}
	return list
}
