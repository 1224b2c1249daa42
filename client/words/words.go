// Package words has the sentences that both faces say: why something is not
// running, and what became of a change. The page imports the same files.
package words

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"

	"orrery.dev/api"
)

//go:embed *.json
var files embed.FS

// Languages are those that there are sentences in.
var Languages = []string{"en", "zh-TW"}

// Words are the sentences of one language, by their keys.
type Words map[string]string

// In is the sentences of one of Languages.
func In(language string) Words {
	data, err := files.ReadFile(language + ".json")
	var w Words
	if err == nil {
		err = json.Unmarshal(data, &w)
	}
	if err != nil {
		panic(fmt.Sprintf("words of %s: %v", language, err)) // they are part of the program
	}
	return w
}

var hole = regexp.MustCompile(`\{(\w+)\}`)

// Say is a sentence with what stands in braces filled in. A newer server may
// name what there is no sentence for: that stands for itself.
func (w Words) Say(key string, params map[string]string) string {
	text, ok := w[key]
	if !ok {
		return key
	}
	return hole.ReplaceAllStringFunc(text, func(h string) string { return params[h[1:len(h)-1]] })
}

// Finding is what a finding says.
func (w Words) Finding(f api.Finding) string { return w.Say("why.f."+f.Code, f.Params) }

// Mend is what a mend says to do.
func (w Words) Mend(m api.Mend) string { return w.Say("why.mend."+m.Code, m.Params) }
