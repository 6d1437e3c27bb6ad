import { Button } from '@mantine/core';

interface Props {
  readonly query: { readonly hasNextPage: boolean; readonly isFetchingNextPage: boolean; fetchNextPage(): unknown };
}

export function More({ query }: Props) {
  if (!query.hasNextPage) return null;
  return (
    <Button variant="default" mt="xs" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()} w="fit-content">
      Show more
    </Button>
  );
}
