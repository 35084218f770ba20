interface TypePolicy {
  createHTML(html: string): string;
  createScriptURL(url: string): string;
}
interface TypePolicyFactory {
  createPolicy(name: string, rules: Partial<TypePolicy>): TypePolicy;
}

/**
 * Creates a Trusted Types policy, or returns the plain functions where the browser has none. The
 * DOM's declarations know only strings, so the trusted values have that type here.
 */
export function typePolicy(name: string, rules: Partial<TypePolicy>): Partial<TypePolicy> {
  const factory = (window as { trustedTypes?: TypePolicyFactory }).trustedTypes;
  return factory ? factory.createPolicy(name, rules) : rules;
}
