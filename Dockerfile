# One image for every Holdfast service: the command says which one runs.
FROM node:20-bookworm-slim AS manifests
WORKDIR /holdfast
COPY . .
# Manifests alone, so that the layers with packages last until one of them changes.
RUN find . -mindepth 1 -not -name package.json -not -name package-lock.json -not -name .npmrc -not -type d -delete \
 && find . -mindepth 1 -type d -empty -delete

FROM node:20-bookworm-slim AS build
WORKDIR /holdfast
COPY --from=manifests /holdfast .
RUN npm ci --no-audit --no-fund
COPY . .
RUN NX_DAEMON=false npm run build \
 && find libs services deploy -name node_modules -prune -exec rm -rf {} +

FROM node:20-bookworm-slim AS packages
WORKDIR /holdfast
COPY --from=manifests /holdfast .
# The optional packages are PostgreSQL's programs and compilers: the image needs neither.
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

FROM node:20-bookworm-slim
ENV NODE_ENV=production
WORKDIR /holdfast
COPY --from=packages /holdfast .
COPY --from=build /holdfast/libs libs
COPY --from=build /holdfast/services services
COPY --from=build /holdfast/deploy/dist deploy/dist
COPY --from=build /holdfast/console/dist console/dist
RUN mkdir -p /var/lib/holdfast/artifacts && chown -R node:node /var/lib/holdfast
USER node
CMD ["node", "--version"]
