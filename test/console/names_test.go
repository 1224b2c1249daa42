package console

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// What users of other faces complained of most has a number, and each that
// concerns terminals has a test that bears it.
func TestEachComplaintHasATest(t *testing.T) {
	wanted := []int{1, 2, 6, 7, 10, 11, 14, 15, 16, 17, 19, 20, 22, 23, 25, 26, 27, 28, 29, 31, 32, 33, 35, 36, 38, 39, 41, 43, 44, 45, 46, 47, 48, 49, 50, 52}
	names := regexp.MustCompile(`(?m)^func Test(T\d+)[A-Z]|t\.Run\("(T\d+(?:, T\d+)*) `)
	number := regexp.MustCompile(`T(\d+)`)
	var found []int
	for _, dir := range []string{".", "../../tui", "../../sshd"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names.FindAllStringSubmatch(string(text), -1) {
				for _, of := range number.FindAllStringSubmatch(name[1]+name[2], -1) {
					n, _ := strconv.Atoi(of[1])
					found = append(found, n)
				}
			}
		}
	}
	for _, n := range wanted {
		if !slices.Contains(found, n) {
			t.Errorf("no test is named for T%d", n)
		}
	}
}
