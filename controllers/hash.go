package controllers

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// templateHash is the value of the pod-template-hash label. It has to be what
// Kubernetes computes, so that a cluster can change hands without a rollout.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*template))
	if collisions != nil {
		salt := make([]byte, 8)
		binary.LittleEndian.PutUint32(salt, uint32(*collisions))
		h.Write(salt)
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}
