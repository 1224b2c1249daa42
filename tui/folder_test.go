package tui

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
)

const manifestsOfShop = `apiVersion: v1
kind: Namespace
metadata: {name: stock}
---
# nothing
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: NodePort}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: fresh}}
- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}
`

func TestManifestsAreRead(t *testing.T) {
	all, err := parseManifests([]byte(manifestsOfShop), firstKinds(), "home")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range all {
		got = append(got, all[i].String())
	}
	if s := strings.Join(got, ", "); s != "namespaces stock, services shop/web, services home/fresh, Widget w" {
		t.Errorf("reads %s", s)
	}
	if all[3].known() == nil || all[0].known() != nil {
		t.Error("what the cluster has no kind for")
	}
	for _, bad := range []string{"a: [", "kind: Pod\nmetadata: {name: x}", "apiVersion: v1\nkind: Pod"} {
		if _, err := parseManifests([]byte(bad), firstKinds(), "home"); err == nil {
			t.Errorf("%q is a manifest", bad)
		}
	}
}

// applying has an API server that applies whatever it is sent, except to the
// objects of which others manage a field, unless that is forced.
func applying(t *testing.T, applied chan string, objects ...runtime.Object) func(*app) {
	return func(a *app) {
		allowing(t, nil, objects...)(a)
		any := a.cluster.any.(*dynamicfake.FakeDynamicClient)
		any.PrependReactor("patch", "*", func(act kubetesting.Action) (bool, runtime.Object, error) {
			patch := act.(kubetesting.PatchActionImpl)
			o := fields{}
			if err := json.Unmarshal(patch.Patch, &o); err != nil {
				return true, nil, err
			}
			options := patch.PatchOptions
			if strings.HasPrefix(patch.Name, "contested") && !*options.Force {
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "services"}, patch.Name, nil)
			}
			if len(options.DryRun) == 0 {
				applied <- patch.Resource.Resource + " " + patch.Namespace + "/" + patch.Name + " by " + options.FieldManager
			}
			return true, unstructuredOf(o), nil
		})
	}
}

func TestFolderOfManifests(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "shop.yaml"), manifestsOfShop)
	write(t, filepath.Join(folder, "notes.txt"), "nothing")
	write(t, filepath.Join(folder, "more", "contested.json"), `{"apiVersion":"v1","kind":"Service","metadata":{"name":"contested"}}`)
	web := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	applied, deleted := make(chan string, 9), make(chan string, 9)
	s := newShow(t, Config{}, 130, 44, applying(t, applied, web), func(a *app) {
		a.cluster.any.(*dynamicfake.FakeDynamicClient).PrependReactor("delete", "*", func(act kubetesting.Action) (bool, runtime.Object, error) {
			deleted <- act.(kubetesting.DeleteAction).GetName()
			return true, nil, nil
		})
	})
	s.await("db-0")
	s.keys(":dir "+folder, tcell.KeyEnter)
	s.await("files ‹"+folder+"›[4]", "../", "more/", "notes.txt", "shop.yaml")
	s.keys("/", "name:notes", tcell.KeyEnter)
	s.await("[1/4]")
	s.keys("a")
	s.await("✗ " + filepath.Join(folder, "notes.txt"))
	s.keys(tcell.KeyEscape, "/", "name:shop", tcell.KeyEnter)
	s.await("[1/4] /name:shop")
	s.keys("y")
	s.await("metadata: {name: stock}", "kind: Widget")
	s.keys(tcell.KeyEscape)
	s.await("[1/4] /name:shop")
	s.keys("a")
	s.await("+ namespaces stock", "~ services shop/web", "-   type: ClusterIP", "+   type: NodePort", "+ services default/fresh", `no kind Widget in the group "example.com"`, "Cancel")
	if len(applied) > 0 {
		t.Error("applies unasked")
	}
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("● namespaces stock", "● services shop/web", "● services default/fresh", "✗ Widget w", "1 of 4 could not be applied")
	if got := []string{<-applied, <-applied, <-applied}; strings.Join(got, ", ") != "namespaces /stock by orrery-tui, services shop/web by orrery-tui, services default/fresh by orrery-tui" {
		t.Errorf("applies %s", got)
	}
	s.keys(tcell.KeyEscape)
	s.await("[1/4] /name:shop")
	s.keys("d")
	s.await("Delete service", "shop/web", "Cancel")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("deleted")
	if got := <-deleted; got != "web" || len(deleted) > 0 {
		t.Errorf("deletes %s and %d more", got, len(deleted))
	}

	// What others manage is taken over only by typing that.
	s.keys(tcell.KeyEscape, "/", "name:more", tcell.KeyEnter)
	s.await("[1/4] /name:more")
	s.keys(tcell.KeyEnter)
	s.await("files ‹"+filepath.Join(folder, "more")+"›[2]", "contested.json")
	s.keys("g", "a")
	s.await("../ is not in this folder")
	s.keys("j", "a")
	s.await("! services default/contested", "others manage fields", `type "force" to confirm`)
	s.keys("force", tcell.KeyEnter)
	s.await("● services default/contested", "applied")
	if got := <-applied; got != "services default/contested by orrery-tui" {
		t.Errorf("applies %s", got)
	}
}

func TestFilesAreEditedHere(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "real", "conf.yaml"), "door: closed\n")
	if err := os.Symlink("real/conf.yaml", filepath.Join(folder, "conf.yaml")); err != nil {
		t.Fatal(err)
	}
	s := newShow(t, Config{Editor: "not-to-be-run"}, 120, 30)
	s.await("db-0")
	s.keys(":dir "+folder, tcell.KeyEnter)
	s.await("conf.yaml")
	s.keys("/", "name:conf", tcell.KeyEnter)
	s.await("[1/3]")
	s.keys("e")
	s.await("edit "+folder, "door: closed")
	s.keys("# ajar ")
	s.control(tcell.KeyCtrlS)
	s.await("- door: closed", "+ # ajar door: closed", "Save")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("saved", "files ‹")
	data, err := os.ReadFile(filepath.Join(folder, "real", "conf.yaml"))
	link, _ := os.Lstat(filepath.Join(folder, "conf.yaml"))
	if err != nil || string(data) != "# ajar door: closed\n" || link.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%q, %v, %v", data, link.Mode(), err)
	}
}

func TestReadOnlyAppliesNoFiles(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a.yaml"), manifestsOfShop)
	s := newShow(t, Config{ReadOnly: true}, 120, 30)
	s.await("db-0")
	s.keys(":dir "+folder, tcell.KeyEnter)
	s.await("a.yaml")
	s.keys("a")
	s.await("apply-file: this console is read only")
	s.keys("d")
	s.await("delete-file: this console is read only")
}
