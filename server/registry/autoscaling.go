package registry

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"orrery.dev/api"
)

type hpa = autoscalingv2.HorizontalPodAutoscaler

func autoscalingV2() []*Kind {
	parts := halves[hpa]{counted: true}
	return []*Kind{kind[hpa, autoscalingv2.HorizontalPodAutoscalerList]{
		Plural: "horizontalpodautoscalers", Short: []string{"hpa"}, In: []string{"all"},
		Validate: api.ValidateHorizontalPodAutoscaler,
		Columns:  hpaColumns(), Row: hpaRow,
		Default: api.DefaultHorizontalPodAutoscaler,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.sub(api.ValidateHorizontalPodAutoscalerStatus)},
	}.erase(autoscalingv2.SchemeGroupVersion)}
}

// autoscalingV1 shows the same objects in the older form; what that cannot say
// travels in annotations.
func autoscalingV1(stored *Kind) []*Kind {
	type old = autoscalingv1.HorizontalPodAutoscaler
	parts := halves[old]{counted: true}
	return []*Kind{kind[old, autoscalingv1.HorizontalPodAutoscalerList]{
		Plural: "horizontalpodautoscalers", Short: []string{"hpa"}, In: []string{"all"},
		Columns: hpaColumns(), Row: hpaV1Row,
		Default:    api.DefaultHorizontalPodAutoscalerV1,
		Store:      stored,
		ToStored:   func(o runtime.Object) (runtime.Object, error) { return api.HPAToV2(as[old](o)) },
		FromStored: func(o runtime.Object) (runtime.Object, error) { return api.HPAToV1(as[hpa](o)) },
		Prepare:    parts.prepare,
		Sub:        Sub{"status": parts.sub(nil)},
	}.erase(autoscalingv1.SchemeGroupVersion)}
}
