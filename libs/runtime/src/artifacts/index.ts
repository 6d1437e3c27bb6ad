export { fileArtifactStore } from './file-store.js';
export { openArtifactStore } from './open.js';
export { ArtifactDamaged, ArtifactDenied, ArtifactMissing, type ArtifactScope, type ArtifactStore } from './store.js';
