/** What an environment sets. Compose, and others like it, pass what is not set as empty. */
export const given = (environment: Readonly<Record<string, string | undefined>>): Record<string, string | undefined> => Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
