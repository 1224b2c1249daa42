package tui

import (
	"fmt"
	"maps"
	"strings"
)

// words is the message catalogue of one language. A message is known by its
// English text; Kubernetes' own terms stay English everywhere.
type words struct{ other map[string]string }

func newWords(locale string) words {
	if language(locale) == "zh-TW" {
		other := traditionalChinese()
		maps.Copy(other, chineseHelp())
		maps.Copy(other, chineseActs())
		return words{other: other}
	}
	return words{}
}

// language is the one of ours that is nearest to a locale.
func language(locale string) string {
	name := strings.ToLower(strings.ReplaceAll(locale, "_", "-"))
	for _, prefix := range []string{"zh-tw", "zh-hant", "zh-hk", "zh-mo"} {
		if strings.HasPrefix(name, prefix) {
			return "zh-TW"
		}
	}
	return "en"
}

// Told is an error in the user's language, as far as there are words for it.
func (c *Config) Told(err error) string { return newWords(c.Language).told(err.Error()) }

// told is what a server, the network or a library said. Those say it in English;
// what users see most often is there in their language.
func (w words) told(text string) string {
	if w.other == nil {
		return text
	}
	for _, k := range knownErrors() {
		text = k.is.ReplaceAllString(text, k.chinese)
	}
	return text
}

// say is a message in the user's language.
func (w words) say(text string, args ...any) string {
	if other, ok := w.other[text]; ok {
		text = other
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}
