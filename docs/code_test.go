package docs_test

import (
	"regexp"
	"strings"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	inlineCode  = regexp.MustCompile("`([^`]+)`")
	listBlock   = regexp.MustCompile(`(?m)^ {4,}\S.*$`)
)

// snippets are the pieces of code in a Markdown text: each line of its blocks, and what
// stands in back quotes.
func snippets(text string) (all []string) {
	for _, block := range fencedBlock.FindAllString(text, -1) {
		all = append(all, strings.Split(block, "\n")...)
	}
	text = fencedBlock.ReplaceAllString(text, "")
	for _, line := range listBlock.FindAllString(text, -1) {
		all = append(all, strings.TrimSpace(line))
	}
	for _, m := range inlineCode.FindAllStringSubmatch(listBlock.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// commandLines splits a snippet where a shell ends a command, and cuts comments off.
func commandLines(snippet string) (all [][]string) {
	snippet, _, _ = strings.Cut(snippet+" ", " # ")
	for _, part := range regexp.MustCompile(`&&|\|\||[|;>]`).Split(snippet, -1) {
		words := strings.Fields(part)
		if len(words) > 1 && words[0] == "sudo" && flagOf(words[1]) == "" {
			words = words[1:]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// entries are the items of a man page's lists: for each `.It` line the lines up to the next.
func entries(page string) map[string][]string {
	found := map[string][]string{}
	item := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, ".It "):
			item = strings.TrimPrefix(line, ".It ")
			found[item] = nil
		case strings.HasPrefix(line, ".Sh "), strings.HasPrefix(line, ".Ss "):
			item = ""
		case item != "":
			found[item] = append(found[item], line)
		}
	}
	return found
}

// arguments are the words that a macro of mdoc marks in a line, like Ic or Fl.
func arguments(macro string, line string) (found []string) {
	marked := false
	for _, word := range strings.Fields(strings.TrimPrefix(line, ".")) {
		switch {
		case regexp.MustCompile(`^[A-Z][a-z]$`).MatchString(word):
			marked = word == macro
		case marked && regexp.MustCompile(`^[\w-]`).MatchString(word):
			found = append(found, word)
		}
	}
	return found
}
