import { send } from './api'

export interface Permission {
  verb: string
  group: string
  resource: string
  subresource?: string
  namespace?: string
  name?: string
}

const known = new Map<string, { at: number; answer: Promise<boolean> }>()
const fresh = 60_000

/** can asks the authoriser; answers are good for a minute. */
export function can(p: Permission): Promise<boolean> {
  const key = JSON.stringify(p)
  const had = known.get(key)
  if (had && Date.now() - had.at < fresh) return had.answer
  const answer = ask(p)
  known.set(key, { at: Date.now(), answer })
  answer.catch(() => known.delete(key))
  return answer
}

async function ask(p: Permission): Promise<boolean> {
  const review = await send('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    method: 'POST',
    body: { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: p } },
  })
  return (await review.json()).status?.allowed === true
}

/** needs says a permission as kubectl does: "patch deployments/scale.apps in shop". */
export function needs(p: Permission): string {
  const what = p.resource + (p.subresource ? '/' + p.subresource : '') + (p.group ? '.' + p.group : '')
  return `${p.verb} ${what}` + (p.namespace ? ` (${p.namespace})` : '')
}
