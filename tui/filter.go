package tui

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

// filter says which rows a table shows, as it was typed:
//
//	text         regular expression over all cells, any case
//	!text        the rows that it does not match
//	-l a=b       labels
//	-f abc       the letters, in this order, in the name
//	status:Run   regular expression over one column
type filter struct {
	keep func(r *api.Row, cells []string) bool
}

// parseFilter reads what was typed; the empty filter keeps everything. columns
// are those of the table, so that a colon in other text means itself.
func parseFilter(typed string, columns []api.RowColumn) (filter, error) {
	f := filter{keep: func(*api.Row, []string) bool { return true }}
	text := strings.TrimSpace(typed)
	switch {
	case text == "":
	case strings.HasPrefix(text, "-l"):
		sel, err := labels.Parse(strings.TrimSpace(text[2:]))
		if err != nil {
			return f, fmt.Errorf("labels: %w", err)
		}
		f.keep = func(r *api.Row, _ []string) bool { return sel.Matches(labels.Set(r.Labels)) }
	case strings.HasPrefix(text, "-f"):
		letters := strings.ToLower(strings.TrimSpace(text[2:]))
		f.keep = func(r *api.Row, _ []string) bool { return hasLetters(strings.ToLower(r.Name), letters) }
	case strings.HasPrefix(text, "!"):
		expr, err := anyCase(text[1:])
		if err != nil {
			return f, err
		}
		f.keep = func(r *api.Row, cells []string) bool { return !anyCell(expr, r, cells) }
	default:
		return f, f.words(text, columns)
	}
	return f, nil
}

// words sets a regular expression over one column or over all.
func (f *filter) words(text string, columns []api.RowColumn) error {
	if name, rest, ok := strings.Cut(text, ":"); ok {
		for i, c := range columns {
			if strings.EqualFold(c.Name, name) {
				expr, err := anyCase(rest)
				if err != nil {
					return err
				}
				f.keep = func(_ *api.Row, cells []string) bool { return i < len(cells) && expr.MatchString(cells[i]) }
				return nil
			}
		}
	}
	expr, err := anyCase(text)
	if err != nil {
		return err
	}
	f.keep = func(r *api.Row, cells []string) bool { return anyCell(expr, r, cells) }
	return nil
}

func anyCase(text string) (*regexp.Regexp, error) {
	expr, err := regexp.Compile("(?i)" + strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return expr, nil
}

func anyCell(expr *regexp.Regexp, r *api.Row, cells []string) bool {
	if expr.MatchString(r.Namespace) || expr.MatchString(r.Name) {
		return true
	}
	for _, c := range cells {
		if expr.MatchString(c) {
			return true
		}
	}
	return false
}

// hasLetters says whether text has the letters in their order.
func hasLetters(text, letters string) bool {
	for _, l := range letters {
		at := strings.IndexRune(text, l)
		if at < 0 {
			return false
		}
		text = text[at+len(string(l)):]
	}
	return true
}
