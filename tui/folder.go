package tui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

const manifestBytes = 16 << 20 // more is no manifest

func folderActions() []action {
	on, instead := []string{"files"}, "use kubectl apply there"
	return []action{
		{name: "dir", help: "a folder of manifests, to apply, edit or delete", instead: instead, run: func(a *app, c call) { a.openFolder(strings.Join(c.args, " ")) }},
		{name: "apply-file", hint: "apply", help: "apply the manifests by server-side apply, after showing what changes", on: on, instead: instead, writes: true, run: (*app).askApply},
		{name: "delete-file", hint: "delete", help: "delete the objects that the manifests describe, after asking; the files stay", on: on, instead: instead, writes: true, run: (*app).askDeleteManifests},
		{name: "edit-file", hint: "edit", help: "edit the file here", on: on, instead: instead, run: one((*app).editFile)},
		{name: "view-file", hint: "view", help: "show the file", on: on, instead: instead, run: one(func(a *app, t target) { a.viewFile(t.name) })},
	}
}

// openFolder shows a folder of this machine instead of all else.
func (a *app) openFolder(path string) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		if home, err := os.UserHomeDir(); err == nil {
			path = home + rest
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.ReadDir(path)
	}
	if err != nil {
		a.fail(err)
		return
	}
	a.replace(a.newFolder(path))
}

// newFolder is the table of a folder. Names stand for their files, as paths: a
// table has no other place for those.
func (a *app) newFolder(path string) *tablePane {
	t := a.newList("files", []string{"Name", "Size", "Modified"}, 2*time.Second, func(context.Context) ([]api.Row, error) {
		rows, err := fileRows(path, func(info fs.FileInfo) api.State {
			if info.IsDir() || isManifest(info.Name()) {
				return api.StateOK
			}
			return api.StateDone
		})
		rows = append(rows, listRow(api.StateDone, "../", "", ""))
		for i := range rows {
			rows[i].Name = filepath.Join(path, rows[i].Name)
		}
		return rows, err
	})
	t.parent = &origin{name: path}
	t.opens = func(name string) {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			a.push(a.newFolder(name))
			return
		}
		a.viewFile(name)
	}
	return t
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

func (a *app) viewFile(path string) {
	p := newText(a, path, func(context.Context) ([]string, error) {
		data, err := readManifest(path)
		return strings.Split(strings.TrimRight(string(data), "\n"), "\n"), err
	})
	p.wrap = false
	p.pager.paint = a.theme.paintYAML
	a.push(p)
}

func readManifest(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > manifestBytes:
		return nil, fmt.Errorf("%s: no file, or too large a one", path)
	}
	return os.ReadFile(path)
}

// editFile edits a file in the editor of our own.
func (a *app) editFile(t target) {
	data, err := readManifest(t.name)
	if err != nil {
		a.fail(err)
		return
	}
	was := string(data)
	var e *editorPane
	e = a.newEditor(a.words.say("edit")+" "+t.name, was, func(edited string) {
		if edited == was {
			a.note("%s", a.words.say("unchanged"))
			return
		}
		a.question(question{title: e.name, text: append(shownChanges(was, edited), ""), yes: "Save", do: func(string) {
			if err := replaceFile(t.name, edited); err != nil {
				a.fail(err)
				return
			}
			a.back()
			a.note("%s", a.words.say("saved"))
		}})
	})
	a.push(e)
}

// replaceFile writes a file that is there, or that a link leads to.
func replaceFile(path, text string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return writeFile(path, []byte(text), info.Mode().Perm())
}

// manifest is an object that a file describes, and what it is in the cluster.
type manifest struct {
	target
	object *unstructured.Unstructured
}

// manifests reads those of files, and of the files in folders.
func (a *app) manifests(on []target) (out []manifest, err error) {
	ks, home := a.kinds, a.home()
	for _, t := range on {
		files := []string{t.name}
		if info, err := os.Stat(t.name); err == nil && info.IsDir() {
			files = nil
			entries, err := os.ReadDir(t.name)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if !e.IsDir() && isManifest(e.Name()) && !strings.HasPrefix(e.Name(), "kustomization.") {
					files = append(files, filepath.Join(t.name, e.Name()))
				}
			}
		}
		for _, file := range files {
			data, err := readManifest(file)
			if err != nil {
				return nil, err
			}
			of, err := parseManifests(data, ks, home)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			out = append(out, of...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New(a.words.say("no manifests there"))
	}
	return out, nil
}

// parseManifests reads the documents of a file; those of kinds that the cluster
// does not know have no kind.
func parseManifests(data []byte, ks kinds, home string) (out []manifest, err error) {
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var o map[string]any
		if err := documents.Decode(&o); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(o) == 0 {
			continue
		}
		object := unstructuredOf(o)
		if object.IsList() {
			if err := object.EachListItem(func(item runtime.Object) error {
				m, err := manifestOf(item.(*unstructured.Unstructured), ks, home)
				out = append(out, m)
				return err
			}); err != nil {
				return nil, err
			}
			continue
		}
		m, err := manifestOf(object, ks, home)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
}

func manifestOf(o *unstructured.Unstructured, ks kinds, home string) (manifest, error) {
	gvk := o.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" || o.GetName() == "" {
		return manifest{}, errors.New("apiVersion, kind and metadata.name are needed")
	}
	m := manifest{target: target{kind: kind{group: gvk.Group, name: gvk.Kind}, namespace: o.GetNamespace(), name: o.GetName()}, object: o}
	if i := slices.IndexFunc(ks, func(k kind) bool { return k.group == gvk.Group && k.name == gvk.Kind }); i >= 0 {
		m.kind = ks[i]
		m.kind.version = gvk.Version
	}
	if !m.kind.namespaced {
		m.namespace = ""
	} else if m.namespace == "" {
		m.namespace = home
		o.SetNamespace(home)
	}
	return m, nil
}

// known is an error if the cluster has no such kind.
func (m *manifest) known() error {
	if m.kind.plural == "" {
		return fmt.Errorf("the cluster has no kind %s in the group %q", m.kind.name, m.kind.group)
	}
	return nil
}

// String names it as kubectl does.
func (m *manifest) String() string {
	return cmp.Or(m.kind.plural, m.kind.name) + " " + m.target.String()
}

// apply applies it, or tells what that would change.
func (c *cluster) apply(ctx context.Context, m *manifest, dry, force bool) (*unstructured.Unstructured, error) {
	if err := m.known(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(m.object)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: "orrery-tui", FieldValidation: "Strict", Force: &force}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return c.of(m.kind, m.namespace).Patch(ctx, m.name, types.ApplyPatchType, data, options)
}

// forecast is what applying would do to an object, in lines for a dialog.
type forecast struct {
	lines    []string
	err      error
	conflict bool
}

func (a *app) foresee(ctx context.Context, m *manifest) (f forecast) {
	after, err := a.cluster.apply(ctx, m, true, false)
	if apierrors.IsConflict(err) {
		f.conflict = true
		f.lines = append([]string{"! " + m.String()}, wrapText(err.Error(), 68)...)
		return f
	}
	if err != nil {
		f.err = fmt.Errorf("%s: %w", m, err)
		f.lines = append([]string{"✗ " + m.String()}, wrapText(err.Error(), 68)...)
		return f
	}
	before, err := a.cluster.of(m.kind, m.namespace).Get(ctx, m.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.lines = []string{"+ " + m.String()}
		return f
	case err != nil:
		f.lines = []string{"~ " + m.String()}
		return f
	}
	was, now := comparable(before), comparable(after)
	if was == now {
		f.lines = []string{"= " + m.String()}
		return f
	}
	f.lines = append([]string{"~ " + m.String()}, shownChanges(was, now)...)
	return f
}

// comparable is an object without what every write changes.
func comparable(o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetGeneration(0)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// chosenManifests are those in the marked files; what is wrong with a file is told,
// and nothing is done with any.
func (a *app) chosenManifests(c call) []manifest {
	if len(c.on) == 0 {
		return nil
	}
	// "../" is a way out of the folder, and nothing of what is in it.
	if slices.ContainsFunc(c.on, func(t target) bool { return t.name == filepath.Dir(c.table.parent.name) }) {
		a.note("%s", a.words.say("../ is not in this folder: choose a file, or go there"))
		return nil
	}
	all, err := a.manifests(c.on)
	if err != nil {
		a.fail(err)
	}
	return all
}

// askApply shows what applying would do, and does it. Fields that others manage
// are taken over only if that is typed.
func (a *app) askApply(c call) {
	all := a.chosenManifests(c)
	if len(all) == 0 {
		return
	}
	a.async(func(ctx context.Context) func() {
		var text []string
		failed, conflicts := []error(nil), false
		for i := range all {
			f := a.foresee(ctx, &all[i])
			if f.err != nil {
				failed = append(failed, f.err)
			}
			conflicts = conflicts || f.conflict
			text = append(text, f.lines...)
		}
		return func() {
			if len(failed) == len(all) {
				a.fail(failed[0])
				return
			}
			const most = 14
			if more := len(text) - most; more > 1 {
				text = append(text[:most], a.words.say("… %d more lines", more))
			}
			q := question{title: a.words.say("Apply") + fmt.Sprintf(" %d", len(all)), text: append(text, ""), yes: "Apply", do: func(string) { a.applyAll(all, conflicts) }}
			if conflicts {
				q.must = "force"
				q.text = append(q.text, wrapText(a.words.say("! others manage fields of these: applying takes them over"), 68)...)
			}
			a.question(q)
		}
	})
}

// applyAll tells in a pane how it goes with each; leaving that does not end it.
func (a *app) applyAll(all []manifest, force bool) {
	p := a.newWork(a.words.say("Apply"), func() {})
	a.push(p)
	c := a.cluster
	a.async(func(ctx context.Context) func() {
		failed := 0
		for i := range all {
			if _, err := c.apply(ctx, &all[i], false, force); err != nil {
				failed++
				p.lines.add("✗ "+all[i].String(), "  "+a.words.told(err.Error()))
				continue
			}
			p.lines.add("● " + all[i].String())
		}
		return func() {
			if failed > 0 {
				a.fail(errors.New(a.words.say("%d of %d could not be applied", failed, len(all))))
				return
			}
			a.note("%s", a.words.say("applied"))
		}
	})
}

// askDeleteManifests deletes the objects of manifests that are there, the last
// first, as what comes first may be what others need.
func (a *app) askDeleteManifests(c call) {
	all := a.chosenManifests(c)
	if len(all) == 0 {
		return
	}
	a.async(func(ctx context.Context) func() {
		var there []target
		var errs []error
		for i := range slices.Backward(all) {
			m := &all[i]
			if m.known() != nil {
				continue
			}
			o, err := a.cluster.of(m.kind, m.namespace).Get(ctx, m.name, metav1.GetOptions{})
			switch {
			case err == nil:
				m.uid = string(o.GetUID())
				there = append(there, m.target)
			case !apierrors.IsNotFound(err):
				errs = append(errs, err)
			}
		}
		return func() {
			switch {
			case len(errs) > 0:
				a.fail(errors.Join(errs...))
			case len(there) == 0:
				a.note("%s", a.words.say("none of these objects is there"))
			default:
				a.askDelete(call{on: there}, false)
			}
		}
	})
}
