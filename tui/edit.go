package tui

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
	"orrery.dev/edit"
)

// editing is an object that a user edits: in their own editor, or in ours. What they
// did to it is done to what it has become meanwhile; a review shows what the server
// would make of that, before it is saved.
//
//	editor --> conflicts, if others changed the same fields --> review --> saved
//	  ^------------- what the server refuses, second thoughts -----'
type editing struct {
	app     *app
	of      target
	base    fields // what the user began with
	was     string // base as text
	text    string // as the user has it
	choices map[string]api.Side
	ours    *editorPane // nil with an editor of the user's
	busy    bool
}

func (a *app) edit(t target) {
	a.async(func(ctx context.Context) func() {
		o, err := a.cluster.of(t.kind, t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			o.SetManagedFields(nil)
			e := &editing{app: a, of: t, base: o.Object, was: yamlOf(o.Object), choices: map[string]api.Side{}}
			e.text = e.was
			if a.config.Editor != "" && a.config.Terminal == nil {
				e.inTheirs(nil)
				return
			}
			e.ours = a.newEditor(e.title("edit"), e.was, e.edited)
			a.push(e.ours)
		}
	})
}

func (e *editing) title(word string) string { return e.app.words.say(word) + " " + e.of.String() }

func yamlOf(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// reasonMark begins a comment that says why the server refused.
const reasonMark = "# ✗ "

// inTheirs opens the user's own editor, with the reasons of a refusal at their fields.
func (e *editing) inTheirs(reasons []edit.Reason) {
	marked := markReasons(e.text, reasons)
	var text string
	ok := e.app.aside(func() (err error) {
		text, err = runEditor(e.app.config.Editor, e.of.kind.singular+"-"+e.of.name+"-*.yaml", marked)
		return err
	})
	if !ok {
		return
	}
	if text = withoutReasons(text); strings.TrimSpace(text) == "" {
		text = e.was
	}
	e.edited(text)
}

func markReasons(text string, reasons []edit.Reason) string {
	lines := strings.Split(text, "\n")
	above := map[int]string{}
	for _, r := range reasons {
		at := max(min(r.Line, len(lines))-1, 0)
		indent := lines[at][:len(lines[at])-len(strings.TrimLeft(lines[at], " "))]
		above[at] += indent + reasonMark + strings.ReplaceAll(r.String(), "\n", "\n"+indent+reasonMark) + "\n"
	}
	var out strings.Builder
	for i, line := range lines {
		out.WriteString(above[i] + line)
		if i < len(lines)-1 {
			out.WriteString("\n")
		}
	}
	return out.String()
}

func withoutReasons(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimLeft(line, " "), reasonMark) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// edited takes what the user wrote, and has the server check it.
func (e *editing) edited(text string) {
	e.text = text
	if text == e.was {
		e.app.note("%s", e.app.words.say("unchanged"))
		return
	}
	e.put(true)
}

// put writes the edit, or only tries to.
func (e *editing) put(dry bool) {
	if e.busy {
		return
	}
	e.busy = true
	text, choices := e.text, maps.Clone(e.choices)
	e.app.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		out, err := e.app.cluster.put(ctx, e, text, choices, dry)
		return func() {
			e.busy = false
			switch {
			case e.ours != nil && !e.app.shows(e.ours): // the user left
			case err != nil:
				e.refused(err)
			case len(out.conflicts) > 0:
				e.step(newConflicts(e, out.conflicts))
			case dry:
				e.review(out)
			default:
				e.close()
				e.app.note("%s", e.app.words.say("saved"))
			}
		}
	})
}

// written is an object before and after a write; or, with conflicts that the user has
// to settle first, nothing was written.
type written struct {
	before, after *unstructured.Unstructured
	conflicts     []api.Conflict
}

// put does to the object as it is now what the user did to the one they saw, field by
// field; so a busy object does not stand in the way. Server-side apply would also take
// from the user what an earlier edit of theirs set.
func (c *cluster) put(ctx context.Context, e *editing, text string, choices map[string]api.Side, dry bool) (out written, err error) {
	mine, err := edit.Read(text)
	if err != nil {
		return out, err
	}
	if o := unstructuredOf(mine); o.GetName() != e.of.name || o.GetNamespace() != e.of.namespace {
		return out, errors.New(e.app.words.say("the name and namespace of an object can't be edited"))
	}
	opts := metav1.UpdateOptions{FieldManager: "orrery-tui", FieldValidation: metav1.FieldValidationStrict}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	objects := c.of(e.of.kind, e.of.namespace)
	for round := 0; ; round++ {
		if out.before, err = objects.Get(ctx, e.of.name, metav1.GetOptions{}); err != nil {
			return out, err
		}
		merged, conflicts := edit.Merge(e.base, mine, out.before.Object, choices)
		for _, conflict := range conflicts {
			if choices[conflict.Path] == "" {
				out.conflicts = conflicts
				return out, nil
			}
		}
		o := unstructuredOf(merged.(fields)).DeepCopy()
		o.SetResourceVersion(out.before.GetResourceVersion())
		if out.after, err = objects.Update(ctx, o, opts); !apierrors.IsConflict(err) || round == 5 {
			return out, err
		}
	}
}

// refused brings the user back to their text, with the reasons at their places.
func (e *editing) refused(err error) {
	reasons := edit.Reasons(err, e.text)
	if e.ours != nil {
		e.back()
		e.ours.refuse(reasons)
		return
	}
	var text []string
	for _, r := range reasons {
		text = append(text, wrapText(r.String(), 64)...)
	}
	e.app.question(question{title: e.title("edit"), text: append(text, ""), yes: "edit", do: func(string) {
		e.back()
		e.inTheirs(reasons)
	}})
}

// review shows what a save would change.
func (e *editing) review(out written) {
	changes := hunks(diffLines(plainLines(out.before), plainLines(out.after)), 3)
	if len(changes) == 0 {
		e.back()
		e.app.note("%s", e.app.words.say("the server would change nothing"))
		return
	}
	p := newText(e.app, e.title("review"), func(context.Context) ([]string, error) { return changes, nil })
	p.scope = []string{"review", "text"}
	p.pager.paint = e.app.theme.paintDiff
	e.step(&reviewPane{p, e})
}

// plainLines are an object as text, without what every write changes: that says nothing
// about the write.
func plainLines(o *unstructured.Unstructured) []string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	unstructured.RemoveNestedField(o.Object, "metadata", "generation")
	return strings.Split(strings.TrimSuffix(yamlOf(o.Object), "\n"), "\n")
}

// step shows what comes between the editor and the save, instead of what did before.
func (e *editing) step(p pane) {
	e.back()
	if e.ours != nil {
		e.ours.refuse(nil)
	}
	e.app.push(p)
}

// back leaves such a pane.
func (e *editing) back() {
	for {
		p, ok := e.app.top().(interface{ edits() *editing })
		if !ok || p.edits() != e || !e.app.back() {
			return
		}
	}
}

// close ends the editing.
func (e *editing) close() {
	e.back()
	if e.ours != nil && e.app.top() == pane(e.ours) {
		e.app.back()
	}
}

// again brings the user back to their text.
func (e *editing) again() {
	e.back()
	if e.ours == nil {
		e.inTheirs(nil)
	}
}

// cancel goes back to our editor; where there is none, what was edited would be lost.
func (e *editing) cancel() {
	if e.ours != nil {
		e.back()
		return
	}
	e.app.question(question{title: e.title("edit"), text: []string{e.app.words.say("what you changed is not saved"), ""}, yes: "Discard", do: func(string) { e.back() }})
}

// shows says whether a pane is on screen, or below what is.
func (a *app) shows(p pane) bool {
	for _, q := range a.stack {
		if q == p {
			return true
		}
	}
	return false
}

// reviewPane shows what a save would change.
type reviewPane struct {
	*textPane
	of *editing
}

func (p *reviewPane) edits() *editing { return p.of }
func (p *reviewPane) save()           { p.of.put(false) }
func (p *reviewPane) leave()          { p.of.cancel() }

// conflictPane shows the fields that others changed, too, and lets the user choose.
type conflictPane struct {
	*pager
	of   *editing
	list []api.Conflict
	at   int
}

func newConflicts(e *editing, list []api.Conflict) *conflictPane {
	c := &conflictPane{pager: newPager(e.app, newLines(0, e.app.dirty)), of: e, list: list}
	c.wrap, c.paint = true, e.app.theme.paintConflict
	c.SetBorder(true).SetBorderStyle(e.app.theme.border).SetBorderPadding(0, 0, 1, 1)
	c.show()
	return c
}

func (c *conflictPane) crumb() string     { return c.of.title("conflicts") }
func (c *conflictPane) scopes() []string  { return []string{"conflicts"} }
func (c *conflictPane) open()             {}
func (c *conflictPane) close()            {}
func (c *conflictPane) refresh(time.Time) {}
func (c *conflictPane) edits() *editing   { return c.of }
func (c *conflictPane) leave()            { c.of.cancel() }

// Draw implements tview.Primitive.
func (c *conflictPane) Draw(s tcell.Screen) {
	c.pager.Draw(s)
	drawTitle(s, c.Box, c.theme, c.crumb())
}

// save goes on to the review, once all is settled.
func (c *conflictPane) save() {
	for i, conflict := range c.list {
		if c.of.choices[conflict.Path] == "" {
			c.move(i - c.at)
			c.of.app.note("%s", c.of.app.words.say("choose for each field: m is yours, t is theirs; Enter goes on"))
			return
		}
	}
	c.of.put(true)
}

func (c *conflictPane) choose(side api.Side, all bool) {
	for i, conflict := range c.list {
		if all || i == c.at {
			c.of.choices[conflict.Path] = side
		}
	}
	c.show()
	if !all {
		c.move(1)
	}
}

func (c *conflictPane) move(n int) {
	c.at = max(min(c.at+n, len(c.list)-1), 0)
	c.show()
}

const mostOfValue = 8 // lines

// show lays the conflicts out, with the one that is chosen for in view.
func (c *conflictPane) show() {
	w := c.of.app.words
	out := []string{w.say("Somebody else changed these fields, too."), w.say("choose for each field: m is yours, t is theirs; Enter goes on"), ""}
	var first, last int
	for i, conflict := range c.list {
		mark := " "
		if i == c.at {
			mark, first = "▸", len(out)
		}
		out = append(out, mark+" "+cmp.Or(conflict.Path, "."))
		out = append(out, valueLines(w, "    "+padText("  "+w.say("before"), 10), conflict.Base)...)
		for _, side := range []struct {
			side  api.Side
			word  string
			value *any
		}{{api.Mine, "yours", conflict.Mine}, {api.Theirs, "theirs", conflict.Theirs}} {
			dot := "○ "
			if c.of.choices[conflict.Path] == side.side {
				dot = "● "
			}
			out = append(out, valueLines(w, "    "+padText(dot+w.say(side.word), 10), side.value)...)
		}
		if out = append(out, ""); i == c.at {
			last = len(out)
		}
	}
	c.lines.set(out)
	_, _, _, h := c.GetInnerRect()
	if c.at == 0 {
		c.top = 0
	} else if first < c.top || last > c.top+h {
		c.top = min(first, max(last-h, 0))
	}
}

// valueLines are a value behind a word.
func valueLines(w words, word string, v *any) []string {
	text := "—"
	if v != nil {
		text = strings.TrimSuffix(yamlOf(*v), "\n")
	}
	lines := strings.Split(text, "\n")
	if more := len(lines) - mostOfValue; more > 0 {
		lines = append(lines[:mostOfValue], w.say("… %d more", more))
	}
	for i, line := range lines {
		if i > 0 {
			word = strings.Repeat(" ", textWidth(word))
		}
		lines[i] = word + " " + line
	}
	return lines
}
