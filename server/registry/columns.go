package registry

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The columns that most kinds share. Never changed.
var (
	nameColumn = Column{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	ageColumn  = text("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])

	// plainColumns are those of kinds without their own.
	plainColumns = []Column{nameColumn, {Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}}
)

func text(name, description string) Column {
	return Column{Name: name, Type: "string", Description: description}
}

func number(name, description string) Column {
	return Column{Name: name, Type: "integer", Description: description}
}

func boolean(name, description string) Column {
	return Column{Name: name, Type: "boolean", Description: description}
}

// wide is a column that kubectl shows with -o wide only.
func wide(c Column) Column {
	c.Priority = 1
	return c
}

func plainRow(obj runtime.Object) []any {
	m, err := meta.Accessor(obj)
	if err != nil {
		return []any{"", ""}
	}
	return []any{m.GetName(), createdAt(m)}
}

// createdAt is the cell of a date column: the time itself, which stays.
func createdAt(m metav1.Object) string { return m.GetCreationTimestamp().UTC().Format(time.RFC3339) }

// What kubectl writes where there is nothing.
const (
	none  = "<none>"
	unset = "<unset>"
)

func titleBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// some joins the first few of many, and counts the others.
func some(all []string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, ",")
	}
	return strings.Join(all[:most], ",") + fmt.Sprintf(" + %d more...", len(all)-most)
}
