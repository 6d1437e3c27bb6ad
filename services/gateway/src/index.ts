export { Audit, type Act } from './access/audit.js';
export { Keys, ROTATION_GRACE_MS, type KeyView, type MadeKey, type NewKey } from './access/keys.js';
export { controllers, endpoints } from './api/endpoints.js';
export { ROLES, type Role } from './domain/access.js';
export { endpointOf, type Endpoint } from './http/endpoint.js';
export { describe } from './http/openapi.js';
export { API_VERSION } from './module.js';
export { gatewayDatabase, openGatewayDatabase } from './store/database.js';
export { beginRebuild, generationsOf } from './views/views.js';
