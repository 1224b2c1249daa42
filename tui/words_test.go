package tui

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// messages are what users are told in their language, with where: what say, note
// and call get as a text, and a dialog as labels.
func messages(t *testing.T) (said map[string]string, literals map[string]bool) {
	t.Helper()
	said, literals = map[string]string{}, map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "words_zh") {
			continue
		}
		file, err := parser.ParseFile(files, entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		text := func(e ast.Expr) (string, bool) {
			l, ok := e.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return "", false
			}
			s, err := strconv.Unquote(l.Value)
			return s, err == nil
		}
		note := func(e ast.Expr) {
			if s, ok := text(e); ok {
				said[s] = files.Position(e.Pos()).String()
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, ok := text(n); ok {
					literals[s] = true
				}
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if (name == "say" || name == "note" || name == "call") && len(n.Args) > 0 {
					note(n.Args[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "yes" || key.Name == "ask" || key.Name == "instead") {
					note(n.Value)
				}
			}
			return true
		})
	}
	return said, literals
}

// TestEveryMessageIsInBothLanguages holds that what users are told is there in
// zh-TW, with the same blanks, and that nothing is there which nobody says.
func TestEveryMessageIsInBothLanguages(t *testing.T) {
	// What is no message, or the same in both languages.
	same := map[string]bool{"OK": true, "replicas": true, "local:remote": true, "%s": true}
	said, literals := messages(t)
	if len(said) < 80 {
		t.Fatalf("only %d messages were found", len(said))
	}
	chinese := newWords("zh_TW").other
	letters := regexp.MustCompile("[a-z]{2}")
	for text, where := range said {
		if _, ok := chinese[text]; !ok && !same[text] && letters.MatchString(text) {
			t.Errorf("%s: no zh-TW for %q", where, text)
		}
	}
	for state := range plainTheme().states {
		literals[string(state)] = true
	}
	blank := regexp.MustCompile(`%(?:\[\d\])?[.\d]*[a-z]`)
	for text, other := range chinese {
		if !literals[text] {
			t.Errorf("nobody says %q", text)
		}
		if a, b := len(blank.FindAllString(text, -1)), len(blank.FindAllString(other, -1)); a != b {
			t.Errorf("%q has %d blanks, %q %d", text, a, other, b)
		}
	}
}
