package tui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"orrery.dev/api"
)

const noFiles = "copy it from your terminal"

func saveActions() []action {
	return []action{
		{name: "save-screen", help: "save the table, the text or the log in a file; :screendump lists them", on: []string{"table", "text", "log", "pulse", "map"}, instead: noFiles, run: func(a *app, _ call) { a.saveScreen() }},
		{name: "screendump", help: "what was saved of this cluster; Enter shows it", instead: noFiles, run: func(a *app, _ call) { a.replace(a.newSaves()) }},
		{name: "delete-save", hint: "delete", help: "delete the saved files, after asking", on: []string{"screendumps"}, instead: noFiles, run: (*app).askDeleteSaves},
	}
}

// writeFile replaces a file as a whole: whoever reads it sees the old one or the
// new one.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which is not there if all went well
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// savesFolder is where what is saved of this cluster is kept.
func (a *app) savesFolder() (string, error) {
	if a.config.State == "" {
		return "", errors.New(a.words.say("there is no place for files: set XDG_STATE_HOME or HOME"))
	}
	return filepath.Join(a.config.State, "screens", fileName(a.contextName())), nil
}

var notInFileNames = regexp.MustCompile(`[^\pL\pN._-]+`)

// fileName is a text as a name that no file system refuses.
func fileName(text string) string {
	text = strings.Trim(notInFileNames.ReplaceAllString(text, "-"), "-.")
	return cmp.Or(cutText(text, 100), "-")
}

// saveScreen saves what the pane holds, also beyond what fits on the screen.
func (a *app) saveScreen() {
	folder, err := a.savesFolder()
	if err != nil {
		a.fail(err)
		return
	}
	name, data := a.screenFile()
	path := filepath.Join(folder, name)
	a.call(a.words.say("saved as %s; :sd lists it", name), func(context.Context) error { return writeFile(path, data, 0o600) })
}

// screenFile is the pane as a file: a table as CSV, a text as it is, anything
// else as it is drawn.
func (a *app) screenFile() (name string, data []byte) {
	p := a.top()
	ending, lines := ".txt", []string(nil)
	switch p := p.(type) {
	case *tablePane:
		ending, data = ".csv", tableCSV(p.snap)
	case *logPane:
		ending, lines = ".log", p.lines.all()
	case interface{ text() *pager }:
		lines = p.text().lines.all()
	default:
		lines = a.screen.text()
	}
	if t, ok := p.(*textPane); ok && t.yaml {
		ending = ".yaml"
	}
	for _, line := range lines {
		data = append(data, stripANSI(line)+"\n"...)
	}
	return fileName(p.crumb()) + "-" + time.Now().Format("20060102-150405.000") + ending, data
}

// text is what "text" panes show.
func (t *textPane) text() *pager { return t.pager }

func tableCSV(s *snapshot) []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out) // which cannot fail here
	var head []string
	for _, c := range s.columns {
		head = append(head, c.name)
	}
	_ = w.Write(head)
	for _, r := range s.rows {
		_ = w.Write(r.cells)
	}
	w.Flush()
	return out.Bytes()
}

// text is what is drawn, line by line.
func (s *screen) text() (out []string) {
	w, h := s.back.Size()
	for y := range h {
		line := ""
		for x := 0; x < w; {
			text, _, width := s.back.Get(x, y)
			line += cmp.Or(text, " ")
			x += max(width, 1)
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// newSaves is the table of what was saved of this cluster, the newest first.
func (a *app) newSaves() *tablePane {
	folder, err := a.savesFolder()
	t := a.newList("screendumps", []string{"Name", "Size", "Saved"}, 2*time.Second, func(context.Context) ([]api.Row, error) {
		if err != nil {
			return nil, err
		}
		return fileRows(folder, func(fs.FileInfo) api.State { return "" })
	})
	t.parent = &origin{name: folder}
	t.rows.want.sortBy, t.rows.want.descending = "saved", true
	t.opens = a.showSave
	return t
}

// fileRows lists a folder; one that is not there is empty.
func fileRows(folder string, state func(fs.FileInfo) api.State) ([]api.Row, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rows := []api.Row{}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(folder, e.Name()))
		if err != nil || strings.HasPrefix(e.Name(), ".") { // it went, leads nowhere, or is hidden
			continue
		}
		name, size := e.Name(), bytesText(info.Size())
		if info.IsDir() {
			name, size = name+"/", ""
		}
		rows = append(rows, listRow(state(info), name, size, info.ModTime().Format(time.DateTime)))
	}
	return rows, nil
}

func (a *app) showSave(name string) {
	folder, err := a.savesFolder()
	if err != nil {
		a.fail(err)
		return
	}
	p := newText(a, name, func(context.Context) ([]string, error) {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil && strings.HasSuffix(name, ".csv") {
			data, err = aligned(data)
		}
		return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), err
	})
	p.wrap = false
	a.push(p)
}

// aligned is a CSV table with its columns below each other.
func aligned(data []byte) ([]byte, error) {
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	err = w.Flush()
	return out.Bytes(), err
}

func (a *app) askDeleteSaves(c call) {
	folder, err := a.savesFolder()
	if err != nil || len(c.on) == 0 {
		return
	}
	a.question(question{title: fmt.Sprintf("%s %d screendumps", a.words.say("Delete"), len(c.on)), text: append(a.names(c.on), ""), yes: "Delete", do: func(string) {
		clear(c.table.marks)
		a.async(func(context.Context) func() {
			var errs []error
			for _, t := range c.on {
				errs = append(errs, os.Remove(filepath.Join(folder, t.name)))
			}
			return func() {
				c.table.reload()
				if err := errors.Join(errs...); err != nil {
					a.fail(err)
					return
				}
				a.note("%s", a.words.say("deleted"))
			}
		})
	}})
}
