package openapi

// forms of the bodies that the server reads and writes.
var (
	produces      = []string{"application/json", "application/yaml", mediaProtobuf, "application/cbor"}
	watchProduces = []string{"application/json;stream=watch", mediaProtobuf + ";stream=watch", "application/cbor-seq"}
	patchConsumes = []string{
		"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/apply-patch+yaml", "application/apply-patch+cbor",
	}
)

var statusWords = map[string]string{"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}

// dialectV2 is Swagger 2.0.
type dialectV2 struct{}

func (dialectV2) parameter(p parameter) object {
	if p.path {
		return object{"name": p.name, "in": "path", "required": true, "type": p.kind, "uniqueItems": true, "description": p.description}
	}
	return object{"name": p.name, "in": "query", "type": p.kind, "uniqueItems": true, "description": p.description}
}

func (d dialectV2) operation(op operation) object {
	out := base(op)
	out["schemes"] = []string{"https"}
	out["consumes"] = []string{"*/*"}
	out["produces"] = replies(op)
	if op.patch {
		out["consumes"] = patchConsumes
	}
	var params []any
	if op.body != "" {
		body := object{"name": "body", "in": "body", "schema": object{"$ref": v2Refs + op.body}}
		if !op.bodyOptional {
			body["required"] = true
		}
		params = append(params, body)
	}
	for _, p := range op.query {
		params = append(params, d.parameter(p))
	}
	if params != nil {
		out["parameters"] = params
	}
	responses := object{"401": object{"description": statusWords["401"]}}
	for _, code := range op.codes {
		responses[code] = object{"description": statusWords[code], "schema": replySchema(op, v2Refs)}
	}
	out["responses"] = responses
	return out
}

// dialectV3 is OpenAPI 3.0.
type dialectV3 struct{}

func (dialectV3) parameter(p parameter) object {
	out := object{"name": p.name, "in": "query", "description": p.description, "schema": object{"type": p.kind, "uniqueItems": true}}
	if p.path {
		out["in"], out["required"] = "path", true
	}
	return out
}

func (d dialectV3) operation(op operation) object {
	out := base(op)
	if op.body != "" {
		consumes := []string{"*/*"}
		if op.patch {
			consumes = patchConsumes
		}
		content := object{}
		for _, media := range consumes {
			content[media] = object{"schema": object{"$ref": v3Refs + op.body}}
		}
		body := object{"content": content}
		if !op.bodyOptional {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	var params []any
	for _, p := range op.query {
		params = append(params, d.parameter(p))
	}
	if params != nil {
		out["parameters"] = params
	}
	responses := object{"401": object{"description": statusWords["401"]}}
	for _, code := range op.codes {
		content := object{}
		for _, media := range replies(op) {
			content[media] = object{"schema": replySchema(op, v3Refs)}
		}
		responses[code] = object{"description": statusWords[code], "content": content}
	}
	out["responses"] = responses
	return out
}

func base(op operation) object {
	return object{
		"operationId": op.id, "description": op.description, "tags": []string{op.tag},
		"x-kubernetes-action": op.action, gvkExtension: gvkObject(op.gvk),
	}
}

func replies(op operation) []string {
	switch {
	case op.reply == "":
		return []string{"*/*"}
	case op.list:
		return append(append([]string{}, produces...), watchProduces...)
	}
	return produces
}

func replySchema(op operation, prefix string) object {
	if op.reply == "" {
		return object{"type": "string"}
	}
	return object{"$ref": prefix + op.reply}
}
