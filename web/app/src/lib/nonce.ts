/** The page's nonce, without which style elements made at run time do nothing. */
export function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''
}
