package registry

import (
	"fmt"
	"strings"
	"testing"
)

// TestColumnsMatchUpstream compares names, types and priorities of all columns
// with those of an upstream control plane (testdata/columns.txt).
func TestColumnsMatchUpstream(t *testing.T) {
	var got []string
	for _, k := range NewBuiltinTable().Kinds() {
		if !k.Can("list") {
			continue
		}
		var columns []string
		for _, c := range k.Columns {
			s := c.Name + " " + c.Type
			if c.Format != "" {
				s += " " + c.Format
			}
			if c.Priority > 0 {
				s += " wide"
			}
			columns = append(columns, s)
		}
		got = append(got, fmt.Sprintf("%s/%s: %s", k.GroupVersion(), k.Plural, strings.Join(columns, " | ")))
	}
	compareLines(t, "testdata/columns.txt", got)
}
