package tui

import "strings"

// asciiForms are what stands for the characters of ours that not every terminal
// has, in pairs. States, and what is beside them, stay apart.
const asciiForms = `●*◐~✓Y▲!✗X▽v○o◆#·.★@┌+┐+└+┘+├+┤+┬+┴+┼+─-│|┄.╳x▶>◀<▼v▸>▾v→>←<↑^↓v↕|█#░.▏|▁_▂_▃-▄-▅=▆=▇#‹<›>…~’'‘'“"”"–-—-×x•*`

// asciiOf is the table of asciiForms.
func asciiOf() map[string]string {
	out := map[string]string{}
	form := []rune(asciiForms)
	for i := 0; i+1 < len(form); i += 2 {
		out[string(form[i])] = string(form[i+1])
	}
	return out
}

// asciiOnly says whether the terminal shows no more than ASCII: its locale has
// another encoding than UTF-8, or its font has none of our glyphs. Without a
// locale a terminal of today is expected.
func asciiOnly(locale, terminal string) bool {
	if terminal == "linux" || terminal == "dumb" || locale == "C" || locale == "POSIX" {
		return true
	}
	_, encoding, named := strings.Cut(strings.ToLower(locale), ".")
	return named && !strings.HasPrefix(encoding, "utf-8") && !strings.HasPrefix(encoding, "utf8")
}
