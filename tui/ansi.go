package tui

import (
	"strconv"
	"strings"

	"github.com/gdamore/tcell/v2"
)

// span is a piece of a line in one style.
type span struct {
	text  string
	style tcell.Style
}

// parseANSI cuts a line into spans by its colour sequences; other sequences and
// control characters go, tabs become spaces.
func parseANSI(line string, base tcell.Style) []span {
	if strings.IndexByte(line, 0x1b) < 0 {
		return []span{{plainText(line), base}}
	}
	var out []span
	style := base
	for line != "" {
		at := strings.IndexByte(line, 0x1b)
		if at < 0 {
			out = append(out, span{plainText(line), style})
			break
		}
		if at > 0 {
			out = append(out, span{plainText(line[:at]), style})
		}
		params, final, rest := escape(line[at+1:])
		if final == 'm' {
			style = sgr(style, base, params)
		}
		line = rest
	}
	return out
}

// escape reads a sequence after its ESC.
func escape(s string) (params string, final byte, rest string) {
	switch {
	case s == "":
		return "", 0, ""
	case s[0] == '[':
		for i := 1; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return s[1:i], s[i], s[i+1:]
			}
		}
		return "", 0, ""
	case s[0] == ']': // up to BEL or ST
		if i := strings.IndexByte(s, 7); i >= 0 {
			return "", 0, s[i+1:]
		}
		if i := strings.Index(s, "\x1b\\"); i >= 0 {
			return "", 0, s[i+2:]
		}
		return "", 0, ""
	}
	return "", 0, s[1:]
}

// sgr applies a "select graphic rendition".
func sgr(style, base tcell.Style, params string) tcell.Style {
	parts := strings.FieldsFunc(params, func(r rune) bool { return r == ';' || r == ':' })
	if len(parts) == 0 {
		return base
	}
	for i := 0; i < len(parts); i++ {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			style = base
		case n == 1:
			style = style.Bold(true)
		case n == 2:
			style = style.Dim(true)
		case n == 3:
			style = style.Italic(true)
		case n == 4:
			style = style.Underline(true)
		case n == 7:
			style = style.Reverse(true)
		case n == 22:
			style = style.Bold(false).Dim(false)
		case n == 39:
			fg, _, _ := base.Decompose()
			style = style.Foreground(fg)
		case n == 49:
			style = style.Background(tcell.ColorDefault)
		case n >= 30 && n <= 37:
			style = style.Foreground(tcell.PaletteColor(n - 30))
		case n >= 90 && n <= 97:
			style = style.Foreground(tcell.PaletteColor(n - 82))
		case n >= 40 && n <= 47:
			style = style.Background(tcell.PaletteColor(n - 40))
		case n >= 100 && n <= 107:
			style = style.Background(tcell.PaletteColor(n - 92))
		case n == 38 || n == 48:
			color, used := extended(parts[i+1:])
			i += used
			if n == 38 {
				style = style.Foreground(color)
			} else {
				style = style.Background(color)
			}
		}
	}
	return style
}

// extended reads "5;n" or "2;r;g;b".
func extended(parts []string) (tcell.Color, int) {
	var n [4]int
	for i := range min(len(parts), 4) {
		n[i], _ = strconv.Atoi(parts[i])
	}
	switch {
	case len(parts) >= 2 && n[0] == 5:
		return tcell.PaletteColor(n[1] & 0xff), 2
	case len(parts) >= 4 && n[0] == 2:
		return tcell.NewRGBColor(int32(n[1]&0xff), int32(n[2]&0xff), int32(n[3]&0xff)), 4
	}
	return tcell.ColorDefault, len(parts)
}

// stripANSI is the line without sequences: what a search looks at.
func stripANSI(line string) string {
	if strings.IndexByte(line, 0x1b) < 0 {
		return line
	}
	var b strings.Builder
	for _, s := range parseANSI(line, tcell.StyleDefault) {
		b.WriteString(s.text)
	}
	return b.String()
}

func plainText(s string) string {
	if isASCII(s) {
		return s
	}
	if strings.IndexByte(s, '\t') >= 0 {
		s = strings.ReplaceAll(s, "\t", "    ")
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
