/** What a resume says of a run about which there is nothing to say. */
export const unchanged = {
  tools: 'none',
  approvals: 'none',
  input: 'same',
  principal: 'none',
  policy: 'none',
  permissions: 'none',
  models: 'none',
  prompts: 'none',
  secrets: 'none',
  dataAccess: 'none',
  preconditions: 'none',
} as const;
