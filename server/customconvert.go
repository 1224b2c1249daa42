package server

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
)

// convertByWebhook asks the definition's author.
func (s *Server) convertByWebhook(crd *definition) registry.Converter {
	name := crd.Name
	return func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		return nil, fmt.Errorf("conversion webhook for %s: conversion from %s to %s by webhook is not available", name, obj.GetAPIVersion(), to)
	}
}
