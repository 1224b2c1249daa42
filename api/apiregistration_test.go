package api

import (
	"encoding/hex"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAPIServiceProtobuf(t *testing.T) {
	for name, want := range map[string]*APIService{
		"empty": {},
		"full": {
			ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", Labels: map[string]string{"a": "b"}},
			Spec: APIServiceSpec{
				Service: &ServiceReference{Namespace: "ns", Name: "s", Port: ptr.To[int32](8443)}, Group: "example.com", Version: "v1",
				InsecureSkipTLSVerify: true, CABundle: []byte("pem"), GroupPriorityMinimum: 2000, VersionPriority: -1,
			},
			Status: APIServiceStatus{Conditions: []APIServiceCondition{
				{Type: "Available", Status: "False", LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 0)), Reason: "R", Message: "m"}, {Type: "Other"},
			}},
		},
	} {
		data, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got := &APIService{}
		if err := got.Unmarshal(data); err != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
		}
		for i := range data {
			_ = new(APIService).Unmarshal(data[:i]) // must not panic
		}
	}
	// As upstream's generated code writes it.
	spec := APIServiceSpec{Service: &ServiceReference{Name: "s"}, Group: "g"}
	if got := hex.EncodeToString(spec.message()); got != "0a050a00120173"+"120167"+"1a00"+"2000"+"3800"+"4000" {
		t.Errorf("spec: %s", got)
	}
}
