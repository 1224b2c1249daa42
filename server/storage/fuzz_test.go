package storage

import (
	"path"
	"testing"
)

// FuzzContinue: whatever a client makes of a token, it does not lead out of the
// prefix that is listed.
func FuzzContinue(f *testing.F) {
	f.Add(token{Revision: 5, Start: "ns/pod\x00"}.encode())
	f.Add(token{Revision: -1, Start: "../secrets/"}.encode())
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi8ifQ")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parseToken(text)
		if err != nil {
			return
		}
		const prefix = "/registry/pods/"
		if key := path.Clean(prefix + read.Start); read.Revision == 0 || len(key) < len(prefix) || key[:len(prefix)] != prefix {
			t.Errorf("%q leads to %q at %d", text, key, read.Revision)
		}
	})
}
